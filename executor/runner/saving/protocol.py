"""One rank's side of the checkpoint protocol: see gpu_plan.executor.checkpoints. Never in the script's way (I/O)."""

import atexit
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.executor import names
from gpu_plan.executor.checkpoints.manifest import DCP, DEEPSPEED, REPLICATED, Manifest, ManifestError, read_manifest
from gpu_plan.executor.checkpoints.markers import Part, begin, complete, finish, manifest_without_files
from gpu_plan.executor.runner.failure import is_full_disk
from gpu_plan.executor.runner.figures.ledger import Row
from gpu_plan.executor.runner.recorder import Recorder

FULL_DISK = 4 * 1024 * 1024
"""Free bytes below which a failed save is put down to the disk: what did not fit was larger than what is left."""
PACKAGES = ("torch", "accelerate", "transformers", "deepspeed", "lightning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the saving library knows of a checkpoint."""

    stack: str
    layout: str
    strategy: str
    rank: int
    world_size: int
    schedule_pace: int | None = None
    step: int | None = None
    """Optimizer steps, where the library counts them; else the recorder's."""
    resumable: bool = True
    parameter_names: tuple[str, ...] = ()
    model_class: str = ""
    parameters: int | None = None


@dataclass(slots=True, kw_only=True)
class _Pending:
    part: Part
    facts: Manifest
    then: list[Callable[[], None]] = field(default_factory=list)
    """What waits until the checkpoint is complete."""


class Saving:
    """What this rank has saved and loaded."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._samples_before: int | None = 0
        self._times: dict[tuple[str, int], int] = {}
        self._pending: list[_Pending] = []
        self._depth = 0
        self.deferred: list[Callable[[], None]] = []
        """Deletions of older checkpoints that wait for the one being saved."""

    def install(self) -> None:
        """Joins the recorder; at the end of the script what is still open is settled."""
        self._recorder.step_ended.append(self._step_ended)
        atexit.register(self._script_ended)

    @contextmanager
    def around(self, folder: Path, facts: Callable[[], Facts], *, mark_before: bool = True) -> Iterator[None]:
        """Around a library's own saving into `folder`; a failure in here is noted and changes nothing else."""
        if self._depth:
            yield
            return
        guard = self._recorder.guard
        self.deferred.clear()
        pending: _Pending | None = guard("a checkpoint's facts", self._describe, folder, facts)
        if pending is not None and mark_before:
            guard("marking a checkpoint", begin, pending.part)
        self._depth += 1
        try:
            with self._recorder.ignoring_steps():
                yield
        except BaseException as error:
            guard("the disk", self._look_at_disk, folder, error)
            raise
        finally:
            self._depth -= 1
        waiting, self.deferred = self.deferred, []
        if pending is None:
            for call in waiting:
                call()
            return
        pending.then += waiting
        guard("a checkpoint's manifest", self._saved, pending)

    def _look_at_disk(self, folder: Path, error: BaseException) -> None:
        """What torch raises when a disk is full does not say so."""
        free = shutil.disk_usage(folder if folder.is_dir() else folder.parent).free
        if free < FULL_DISK or is_full_disk(error):
            self._recorder.disk_was_full(str(folder.absolute()))
            self._recorder.note(f"saving {folder} failed on a full disk: {free:,} bytes are free")

    def _describe(self, folder: Path, facts: Callable[[], Facts]) -> _Pending:
        recorder, found = self._recorder, facts()
        options, latest = recorder.options, recorder.ledger.last
        step = recorder.completed_steps if found.step is None else found.step
        times = self._times.get((str(folder), step), 0)
        self._times[str(folder), step] = times + 1
        totals = recorder.ledger.summary()["samples"] if latest is not None and latest.samples is not None else None
        consumed = 0 if latest is None else totals
        return _Pending(
            part=Part(
                folder=folder.absolute(),
                rank=found.rank,
                key=f"{options.run_id}/{options.attempt}/{step}/{times}",
                samples=consumed if isinstance(consumed, int) else None,
            ),
            facts=manifest_without_files(
                run_id=options.run_id,
                attempt=options.attempt,
                step=step,
                samples=self._samples_before,
                stack=found.stack,
                layout=found.layout,
                strategy=found.strategy,
                world_size=found.world_size,
                schedule_pace=found.schedule_pace,
                model_class=found.model_class,
                parameters=found.parameters,
                micro_batch_size=recorder.actual.get("micro_batch_size"),
                gradient_accumulation_steps=latest.micro_batches if latest is not None else None,
                resumable=found.resumable,
                parameter_names=found.parameter_names,
                versions=_versions(),
            ),
        )

    def _saved(self, pending: _Pending) -> None:
        finish(pending.part)
        if complete(pending.part, pending.facts):
            self._completed(pending)
        elif pending.part.rank == 0:
            self._pending.append(pending)
        self._recorder.saved(_shown(pending.part.folder))

    def _completed(self, pending: _Pending) -> None:
        for call in pending.then:
            call()

    def _step_ended(self, row: Row, optimizer: object, new: bool) -> None:
        if self._pending and new:
            self._recorder.guard("a checkpoint's manifest", self.settle)

    def settle(self) -> None:
        """All ranks have joined a collective after their saving: whoever has not saved by now will not."""
        waiting, self._pending = self._pending, []
        for pending in waiting:
            alone = pending.facts.layout == REPLICATED
            if complete(pending.part, pending.facts, only_this_rank=alone):
                self._completed(pending)
            else:
                self._recorder.note(
                    f"{pending.part.folder} is not complete: ranks of other machines do not save where rank 0 does"
                )

    def _script_ended(self) -> None:
        if self._pending and self._recorder.status == "done":
            self._recorder.guard("a checkpoint's manifest", self.settle)

    def loaded(self, folder: Path, step: int | None = None) -> Manifest | None:
        """The script has loaded a checkpoint: steps and samples go on from there. Its manifest, where it has one."""
        manifest: Manifest | None = None
        try:
            manifest = read_manifest(folder)
        except ManifestError:
            self._samples_before = None
        else:
            self._samples_before = manifest.samples
        if step is None and manifest is not None:
            step = manifest.step
        if step is not None:
            self._recorder.resume_at(step)
        return manifest


def resume_folder() -> str | None:
    """The checkpoint that this attempt is to go on from."""
    return os.environ.get(names.RESUME_FROM) or None


def layout_of(distributed: str, state_dict: str | None) -> str:
    """Layout by accelerate's distributed type and FSDP's state dict type. ValueError for one without a name here."""
    if distributed == "DEEPSPEED":
        return DEEPSPEED
    if distributed != "FSDP":
        return REPLICATED
    layouts = {"SHARDED_STATE_DICT": DCP, "FULL_STATE_DICT": "fsdp-full"}
    if state_dict not in layouts:
        raise ValueError(f"state dict type {state_dict}")
    return layouts[state_dict]


def _shown(folder: Path) -> str:
    """Relative to the working directory where it lies below that."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found
