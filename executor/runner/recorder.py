"""What happens in the rank, as the hooks tell it, turned into steps, phases and the rank's record.

Intervals are cut at four borders: a backward pass begins and ends, an optimizer begins and ends. What lies before the
first is `forward`, up to the second `backward`, the rest (clipping included) `optimizer`. No border waits for a device.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpu_plan.executor.records.rank import RankError, RankStatus
from gpu_plan.executor.runner.document import document
from gpu_plan.executor.runner.figures.batches import Batch
from gpu_plan.executor.runner.figures.ledger import Ledger, Row, most, plus
from gpu_plan.executor.runner.figures.losses import HostLosses, Losses
from gpu_plan.executor.runner.figures.not_finite import NotFiniteLoss
from gpu_plan.executor.runner.figures.rounds import Rounds
from gpu_plan.executor.runner.memory.process import Memory, ResidentMemory
from gpu_plan.executor.runner.options import Options
from gpu_plan.executor.runner.record import RankFile

MAX_SHAPES = 16


class Recorder:
    """One rank's record while its script runs. Its methods are called from hooks in the main thread."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.perf_counter) -> None:
        self.options = options
        self.file = RankFile(options.folder, options.rank)
        self.ledger = Ledger()
        self.resident = ResidentMemory()
        self.memory: Memory = self.resident
        self.losses: Losses = HostLosses()
        self.actual: dict[str, Any] = {}
        self.shapes: dict[tuple[int, ...], None] = {}
        self.checkpoints: list[str] = []
        self.inference: dict[str, Any] | None = None
        """Fields of `gpu_plan.executor.records.rank.InferenceFigures`, kept by a script that runs prompts."""
        self.notes: dict[str, None] = {}
        self.started = time.time()
        self.base_resident = self.resident.resident()
        self.status: RankStatus = "starting"
        self.error: RankError | None = None
        self.exit_code: int | None = None
        self.left: str | None = None
        self.moments: dict[str, float] = {}
        self.step_ended: list[Callable[[Row, Any, bool], None]] = []
        """Called after each optimizer's step: the row, the optimizer, whether a step of the job has begun with it."""
        self.model_found: Callable[[Any], None] = _nothing
        """Called before a model's first training call."""
        self.training_begins: Callable[[], None] = _nothing
        """Called once, before the first training call is recorded."""
        self.before_backward: Callable[[], None] = _nothing
        self.micro_batch_ended: Callable[[], None] = _nothing
        self._clock = clock
        self._rounds = Rounds()
        self._round = Row(step=0)
        self._began: float | None = None
        self._afresh = True
        self._backward = self._optimizer = 0
        self._passes = self._passes_at_begin = 0
        self._written = float("-inf")
        self._ignoring = False
        self._broken: set[str] = set()
        self._full_disk: str | None = None
        self.optimizer_calls = 0
        self.skipped_steps = 0

    # What other hooks may say

    def resume_at(self, step: int) -> None:
        """The script has loaded a checkpoint of `step` optimizer steps: counting goes on from there."""
        if self.ledger.count == 0:
            self.ledger.offset = step

    @property
    def completed_steps(self) -> int:
        """Optimizer steps of the whole job so far, those of earlier attempts included."""
        return self.ledger.offset + self.ledger.count

    def saved(self, path: str) -> None:
        """A checkpoint that this rank has saved completely."""
        self._full_disk = None
        if path not in self.checkpoints:
            self.checkpoints.append(path)
        self.set_aside()
        self.write()

    @contextmanager
    def ignoring_steps(self) -> Iterator[None]:
        """While a checkpoint is saved or loaded: torch steps an optimizer on zeros to make its state."""
        before, self._ignoring = self._ignoring, True
        try:
            yield
        finally:
            self._ignoring = before

    def set_aside(self) -> None:
        """What was done since the last step was no training: the next step's time begins with its forward pass."""
        if self._round.micro_batches == 0:
            self._afresh = True

    def note(self, text: str) -> None:
        """Something that could not be observed, and why."""
        if text not in self.notes and len(self.notes) < 32:
            self.notes[text] = None

    def failed(self, where: str, error: Exception) -> None:
        """A hook of ours went wrong: the script goes on, the record says what is missing."""
        if where not in self._broken:
            self._broken.add(where)
            self.note(f"not observed: {where} ({type(error).__name__}: {error})")

    def guard(self, where: str, call: Callable[..., Any], *args: Any) -> Any:
        """`call(*args)`, whose failure is the record's loss alone; None then. SystemExit passes."""
        try:
            return call(*args)
        except Exception as error:
            self.failed(where, error)
            return None

    # What the training does

    @property
    def in_backward(self) -> bool:
        """Whether a backward pass runs: modules called within are recomputed."""
        return self._backward > 0

    def forward_begins(self, batch: Batch | None, *, training: bool) -> None:
        """The model is called, from outside any backward pass."""
        if not training:
            self.set_aside()
            return
        self._start()
        if batch is None:
            return
        counts = self.options.counts_samples
        self._round.samples = plus(self._round.samples, batch.samples if counts else 0)
        self._round.tokens = plus(self._round.tokens, batch.tokens if counts or batch.tokens is None else 0)
        if batch.shape not in self.shapes and len(self.shapes) < MAX_SHAPES:
            self.shapes[batch.shape] = None
        if "micro_batch_size" not in self.actual:
            self.actual["micro_batch_size"] = batch.samples
            self.actual["sequence_length"] = batch.sequence_length

    def backward_begins(self, loss: Any | None, scale: float = 1.0) -> None:
        """A backward pass from `loss` (None: not known); only the outermost one counts."""
        self._backward += 1
        if self._backward > 1:
            return
        self._start()
        self.before_backward()
        self._border("forward")
        if loss is not None:
            self.losses.see(loss, scale)

    def backward_ends(self) -> None:
        self._backward -= 1
        if self._backward > 0:
            return
        self._border("backward")
        self._passes += 1
        self._round.micro_batches += 1
        self.micro_batch_ended()
        if self._clock() - self._written > self.options.record_seconds:
            self.write()

    def optimizer_begins(self) -> None:
        """An optimizer's step; those that it calls inside are its own affair."""
        if self._ignoring:
            return
        if self._passes > self._passes_at_begin:
            # Not called by the one that began before: that one ended by an exception, or calls us after a closure.
            self._optimizer = 0
        self._optimizer += 1
        if self._optimizer == 1:
            self._passes_at_begin = self._passes
            self.optimizer_calls += 1
            if self._round.micro_batches:
                self._border("optimizer")

    def optimizer_ends(self, optimizer: Any, *, applied: bool = True) -> None:
        """`applied` is False where the engine found an overflow and left the weights alone."""
        if self._ignoring:
            return
        self._optimizer = max(self._optimizer - 1, 0)
        if self._optimizer > 0:
            return
        if applied:
            self._step(optimizer)
        else:
            self.step_skipped()

    def engine_step_ends(self, engine: Any, applied: bool) -> None:
        """As `optimizer_ends`, for an engine that calls optimizers inside."""
        self.optimizer_ends(engine, applied=applied)

    @property
    def outside_optimizer(self) -> bool:
        """Whether no optimizer's or engine's step is under way."""
        return self._optimizer == 0

    def step_skipped(self) -> None:
        """The round ends without a step: fp16 gradients overflowed."""
        self.skipped_steps += 1
        self._round, self._afresh = Row(step=0), True
        self.losses.drop()

    def _start(self) -> None:
        if not self._afresh and self._began is not None:
            return
        first = self.status == "starting"
        if first:
            self.training_begins()
        self._afresh = False
        self.memory.border()
        if first:
            self.status = "running"
            self.moments.setdefault("training", time.time())
            self.write()
        self._began = self._clock()

    def _border(self, phase: str) -> None:
        peak, reserved = self.memory.border()
        if peak is None:
            return
        self._round.phases[phase] = max(self._round.phases.get(phase, 0), peak)
        if reserved is None:
            self._round.resident_bytes = most(self._round.resident_bytes, peak)
        else:
            self._round.peak_allocated_bytes = most(self._round.peak_allocated_bytes, peak)
            self._round.peak_reserved_bytes = most(self._round.peak_reserved_bytes, reserved)

    def _step(self, optimizer: Any) -> None:
        self._border("optimizer")
        now = self._clock()
        row, self._round = self._round, Row(step=0)
        row.seconds = now - self._began if self._began is not None else 0.0
        self._began = now
        due = now - self._written > self.options.record_seconds
        if row.peak_allocated_bytes is not None:
            row.resident_bytes = self.resident.resident()
            row.device_used_bytes = self.memory.device_used() if due or self.ledger.count < 3 else None
        latest = self.ledger.last
        new = self._rounds.stepped(optimizer) or latest is None
        if new or latest is None:
            self.ledger.append(row)
        else:
            latest.add(row)
            row = latest
        self.moments.setdefault("first_step", time.time())
        self.losses.close(row)
        if self.options.stop_on_nan:
            self._stop_on_nan(row)
        for told in self.step_ended:
            told(row, optimizer, new)
        if due or (new and self.ledger.count == 1):
            self.write()

    def _stop_on_nan(self, row: Row) -> None:
        """Waits for the step's loss, which nothing else does. Raises NotFiniteLoss where it is no finite number."""
        self.losses.settle(wait=True)
        if row.not_finite is not None:
            raise NotFiniteLoss(f"the loss is {row.not_finite} at step {row.step} (--stop-on-nan)")

    # The record

    def write(self, *, last: bool = False) -> None:
        """Replaces the rank's record."""
        self._written = self._clock()
        if self.file.path is None:
            return
        self.file.write(document(self, time.time(), os.getpid()), last=last)

    def disk_was_full(self, path: str) -> None:
        """Something could not be written for want of room: the error that follows may say something else."""
        self._full_disk = path

    def finish(self, status: RankStatus, error: RankError | None, code: int | None) -> None:
        """The last record of this rank. A second call, by a signal in the midst of the first, writes what that one had
        to say: the process may not live until the first comes to its own writing.
        """
        if error is not None and not error.full_disk and self._full_disk is not None:
            error = replace(error, full_disk=self._full_disk)
        if self.status in ("starting", "running"):
            self.error, self.exit_code, self.status = error, code, status
            try:
                self.losses.settle(wait=status == "done")
            except Exception as problem:
                self.failed("the last losses", problem)
        elif self.file.final:
            return
        self.write(last=True)

    def notes_now(self) -> Sequence[str]:
        """All notes, those of the moment included."""
        found = list(self.notes)
        for text in (self.memory.note(), self.file.problem):
            if text is not None:
                found.append(text)
        if self.skipped_steps:
            found.append(f"{self.skipped_steps} optimizer steps were skipped: fp16 gradients overflowed")
        return found


def _nothing(*args: Any) -> None:
    """Until torch is imported nobody listens."""
