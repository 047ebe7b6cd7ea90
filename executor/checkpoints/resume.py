"""How a checkpoint is resumed under a plan: as it stands, converted first, or not at all. Pure but for `make_ready`.

What was seen to work, with the losses of an uninterrupted run, is listed here; everything else is refused at once
rather than tried after the model has been loaded.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor.checkpoints.find import Checkpoint, open_checkpoint
from gpu_plan.executor.checkpoints.manifest import DCP, DEEPSPEED, DEEPSPEED_UNIVERSAL, REPLICATED, SPREAD, Manifest
from gpu_plan.planner.errors import PreflightError
from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.planner.strategy.known import all_traits, known_traits
from gpu_plan.planner.strategy.traits import Form, Traits

_SPELLED_WITH_A_VOWEL = "aefhilmnorsx"
"""First letters before which an abbreviation takes `an`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What has to be made of a checkpoint before a plan can go on from it."""

    layout: str
    strategy: str
    world_size: int
    needed_bytes: int
    """Free disk that it takes, what it needs in between included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """How to go on from a checkpoint."""

    checkpoint: Checkpoint
    conversion: Conversion | None = None
    """None: the checkpoint is given to the script as it stands."""
    refused: str | None = None
    """Why it cannot be resumed, one line; nothing else holds then."""
    notes: tuple[str, ...] = ()
    """What will differ from an uninterrupted run, one line each."""


def decide_resume(checkpoint: Checkpoint, strategy: str, world_size: int, *, parameters: int | None = None) -> Resume:
    """How `checkpoint` is resumed under a strategy on `world_size` ranks.

    `parameters`: how many the planned model has; None where that is not to be compared.
    """
    manifest = checkpoint.manifest
    if parameters is not None and manifest.parameters is not None and parameters != manifest.parameters:
        which = f"a {manifest.model_class}" if manifest.model_class else "another model"
        return Resume(
            checkpoint=checkpoint,
            refused=f"it holds {which} of {manifest.parameters:,} parameters, the plan is for {parameters:,}",
        )
    if not manifest.resumable:
        return Resume(checkpoint=checkpoint, refused="it holds weights without an optimizer")
    found = _route(manifest, strategy, world_size)
    if isinstance(found, str):
        return Resume(checkpoint=checkpoint, refused=found)
    return Resume(checkpoint=checkpoint, conversion=found, notes=_notes(manifest, world_size))


def _route(manifest: Manifest, strategy: str, world_size: int) -> Conversion | str | None:
    """A conversion, None where none is needed, or why it cannot be."""
    before, after = known_traits(manifest.strategy), known_traits(strategy)
    if before is None or after is None:
        return f"{manifest.strategy if before is None else strategy} is not a strategy that this version knows"
    saved, wanted = before.checkpoint, after.checkpoint
    if manifest.layout == DEEPSPEED_UNIVERSAL:
        same = wanted.form is saved.form
        return None if same else f"it was converted for {before.name}: take the checkpoint that it was made from"
    if manifest.layout == DEEPSPEED:
        return _from_deepspeed(manifest, before, after, world_size)
    if after.uses_deepspeed:
        return f"no converter makes a {strategy} checkpoint of one saved under {before.name}: stay with {before.name}"
    if manifest.layout == REPLICATED:
        return None if wanted.form is Form.WHOLE else _from_replicated(manifest, after, world_size)
    if manifest.layout == SPREAD and wanted.form is Form.WHOLE:
        return None
    if wanted.form is not Form.WHOLE:
        return None if wanted.form is saved.form else f"{before.name} shards are not read by {strategy}"
    if manifest.layout == DCP and saved.form in wanted.made_from:
        return _conversion(manifest, REPLICATED, strategy, world_size)
    return (
        f"no converter makes a {strategy} checkpoint of one saved under {before.name} in one file:"
        f" stay with {before.name}"
    )


def _from_replicated(manifest: Manifest, after: Traits, world_size: int) -> Conversion | str | None:
    if Form.WHOLE not in after.checkpoint.made_from:
        article = "an" if after.name[0] in _SPELLED_WITH_A_VOWEL else "a"
        reads = next(other.name for other in all_traits() if Form.WHOLE in other.checkpoint.made_from)
        made = f"{article} {after.name} checkpoint"
        return f"no converter makes {made} of one saved under {manifest.strategy}: {reads} reads one"
    if not manifest.parameter_names:
        return "its optimizer names parameters by number, and which they are was not recorded (several optimizers?)"
    return _conversion(manifest, DCP, after.name, world_size)


def _from_deepspeed(manifest: Manifest, before: Traits, after: Traits, world_size: int) -> Conversion | str | None:
    if not after.uses_deepspeed:
        return f"{before.name} state is not read by {after.name}, only its weights are: stay with ZeRO"
    if before.name == after.name and world_size == manifest.world_size:
        return None
    if before.uses_deepspeed and before.checkpoint.form not in after.checkpoint.made_from:
        name = before.name
        return f"DeepSpeed's universal checkpoint of {name} does not load under {after.name}: stay with {name}"
    return _conversion(manifest, DEEPSPEED_UNIVERSAL, after.name, world_size)


def _conversion(manifest: Manifest, layout: str, strategy: str, world_size: int) -> Conversion:
    # A universal checkpoint is written from fragments that are on the disk at the same time.
    copies = 2 if layout == DEEPSPEED_UNIVERSAL else 1
    return Conversion(
        layout=layout, strategy=strategy, world_size=world_size, needed_bytes=copies * manifest.total_bytes
    )


def _notes(manifest: Manifest, world_size: int) -> tuple[str, ...]:
    if world_size > manifest.world_size:
        first = manifest.world_size
        return (f"ranks from {first} on begin with new random states: the checkpoint is of {first} ranks",)
    if not manifest.random_states:
        return ("ranks from 1 on begin with new random states: rank 0 saved alone",)
    return ()


def make_ready(resume: Resume, into: Path) -> Path:
    """The folder to give to the script; a conversion is run into a folder below `into`, the original left alone.

    Raises PreflightError in one line where it is refused, where the disk is too small, or where converting fails.
    """
    source = resume.checkpoint.path
    if resume.refused is not None:
        raise PreflightError(f"{source} cannot be resumed under this plan: {resume.refused}")
    wanted = resume.conversion
    if wanted is None:
        return source
    target = into / converted_name(source, wanted)
    return open_checkpoint(target).path if target.is_dir() else convert_into(resume.checkpoint, wanted, target)


def converted_name(source: Path, wanted: Conversion) -> str:
    """`step-4-as-fsdp-2`."""
    return f"{source.name}-as-{wanted.strategy}-{wanted.world_size}"


def convert_into(checkpoint: Checkpoint, wanted: Conversion, target: Path) -> Path:
    """Makes the new checkpoint `target`, whole or not at all; the original is left alone.

    Raises PreflightError in one line where the disk is too small, or where converting fails.
    """
    source, target = checkpoint.path, target.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
    except OSError as error:
        raise PreflightError(f"{target.parent} cannot be written: {error.strerror or error}") from None
    if free < wanted.needed_bytes:
        raise PreflightError(
            f"converting {source} for {wanted.strategy} takes {wanted.needed_bytes / 1e9:.1f} GB, "
            f"{target.parent} has {free / 1e9:.1f} GB free: make room, or resume under {checkpoint.manifest.strategy}"
        )
    command = [*own_command("gpu_plan.executor.checkpoints.convert"), str(source), str(target)]
    command += ["--layout", wanted.layout, "--strategy", wanted.strategy, "--world-size", str(wanted.world_size)]
    ended = subprocess.run(command, env=own_environment(os.environ), capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        last = (ended.stderr.strip() or ended.stdout.strip() or "no message").splitlines()[-1]
        raise PreflightError(f"{source} could not be converted for {wanted.strategy}: {last}")
    return open_checkpoint(target).path
