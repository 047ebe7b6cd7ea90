"""A checkpoint that the user's own words name: whether a plan can go on from it, before anything is launched (I/O)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor.checkpoints.find import Checkpoint, check_whole, is_ours, search
from gpu_plan.executor.checkpoints.manifest import ManifestError, read_manifest
from gpu_plan.executor.checkpoints.resume import Resume, decide_resume
from gpu_plan.executor.script.resume_words import Named, named
from gpu_plan.planner.errors import PreflightError


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A checkpoint among a script's words."""

    named: Named
    resume: Resume
    """Never a refusal."""


def given_checkpoint(
    words: Sequence[str],
    directory: Path,
    *,
    strategy: str,
    world_size: int,
    parameters: int | None,
    whole: bool = True,
) -> Given | None:
    """The checkpoint that a script is told to load; None where its words name none that a run of ours has saved.

    `directory`: what relative paths are relative to. `parameters`: those of the planned model, None where they are not
    to be compared. `whole`: every byte is read; without, the manifest alone.

    Raises PreflightError in one line for one that is torn or damaged, of another model, or that cannot be resumed.
    """
    for each in named(words):
        path = (directory / Path(each.value).expanduser()).absolute()
        if not is_ours(path):
            continue
        checkpoint = _opened(each, path, whole)
        resume = decide_resume(checkpoint, strategy, world_size, parameters=parameters)
        if resume.refused is not None:
            raise PreflightError(
                f"{each.option} {each.value} cannot be resumed under this plan ({strategy} on {world_size} ranks):"
                f" {resume.refused}"
            )
        return Given(named=each, resume=resume)
    return None


def _opened(given: Named, path: Path, whole: bool) -> Checkpoint:
    try:
        return check_whole(path) if whole else Checkpoint(path=path, manifest=read_manifest(path))
    except ManifestError as error:
        # Not taken in its place unasked: the user named one.
        other = search([path.parent]).newest if whole else None
        hint = "" if other is None else f"; the newest whole one beside it is {other.path.name}"
        hint += "" if other is None else f" (step {other.manifest.step})"
        raise PreflightError(f"{given.option} {given.value} is not a complete checkpoint: {error}{hint}") from None
