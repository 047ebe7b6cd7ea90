"""From which checkpoint the next attempt goes on (I/O)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_plan.executor.checkpoints.find import newest_complete, search
from gpu_plan.executor.checkpoints.given import Given, given_checkpoint
from gpu_plan.executor.checkpoints.resume import decide_resume, make_ready
from gpu_plan.executor.inference.job import is_inference
from gpu_plan.executor.job import Job
from gpu_plan.executor.names import CONVERTED_FOLDER
from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.script.resume_words import replaced
from gpu_plan.executor.supervise.causes.disk import LITTLE, free_bytes
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Where an attempt begins."""

    path: Path | None = None
    """The checkpoint to load; None for a start from nothing."""
    step: int = 0
    """The last step that it holds."""
    notes: tuple[str, ...] = ()
    """For people: what was found, skipped, refused."""


def find_resumption(job: Job, folder: RunFolder, roots: Iterable[Path]) -> Resumption:
    """The newest complete checkpoint of this run, made ready for the job's strategy; nothing where none can be had."""
    if is_inference(job.saved):
        return Resumption()  # each prompt that is done lies beside the output: its ranks look there
    places = (folder.path, *roots)
    looked = search(places, run_id=folder.run_id)
    notes = [f"skipped {one.path}: {one.reason}" for one in looked.skipped]
    found = looked.newest
    if found is None:
        return Resumption(notes=(*notes, "this run has no complete checkpoint: from the beginning"))
    strategy = job.saved.plan.strategy
    resume = decide_resume(found, strategy.name, strategy.world_size, parameters=job.expected_parameters)
    try:
        path = make_ready(resume, folder.path / CONVERTED_FOLDER)
    except PlanError as error:
        return Resumption(notes=(*notes, f"{error}: from the beginning"))
    if path != found.path:
        notes.append(f"{found.path} was converted for {strategy.name}")
    return Resumption(path=path, step=found.manifest.step, notes=(*notes, *resume.notes))


def start_from_given(job: Job, folder: RunFolder) -> tuple[Job, Resumption]:
    """Where an attempt begins that has no checkpoint of its own: where the user's words say.

    The job's words name a converted checkpoint instead, where theirs does not go with its strategy as it stands. Raises
    PreflightError in one line where it cannot be resumed.
    """
    given = given_in(job)
    if given is None:
        return job, Resumption()
    source, strategy = given.resume.checkpoint, job.saved.plan.strategy
    path = make_ready(given.resume, folder.path / CONVERTED_FOLDER / "given")
    notes = given.resume.notes
    if path != source.path:
        job = replace(job, arguments=replaced(job.arguments, given.named, str(path)))
        saved = f"{source.manifest.strategy} on {source.manifest.world_size}"
        notes = (f"{source.path}, saved under {saved}, was converted for {strategy.name}", *notes)
    return job, Resumption(path=path, step=source.manifest.step, notes=notes)


def given_in(job: Job, *, whole: bool = True) -> Given | None:
    """The checkpoint that the job's own words name. As `given_checkpoint`."""
    if is_inference(job.saved):
        return None
    strategy = job.saved.plan.strategy
    return given_checkpoint(
        job.arguments,
        job.working_directory,
        strategy=strategy.name,
        world_size=strategy.world_size,
        parameters=job.expected_parameters,
        whole=whole,
    )


def keeps_progress(job: Job, folder: RunFolder, roots: Iterable[Path]) -> Callable[[StrategyChoice], bool]:
    """Whether a strategy can go on from what this run has saved, or else from where the user's words say; true for any
    where there is nothing."""
    found = newest_complete((folder.path, *roots), run_id=folder.run_id)
    given = given_in(job, whole=False) if found is None else None
    checkpoint = given.resume.checkpoint if given is not None else found

    def keeps(strategy: StrategyChoice) -> bool:
        return checkpoint is None or decide_resume(checkpoint, strategy.name, strategy.world_size).refused is None

    return keeps


def checkpoint_roots(ranks: Iterable[RankRecord], working_directory: Path) -> set[Path]:
    """Folders in which ranks saved checkpoints, wherever the script put them."""
    return {(working_directory / folder).parent for rank in ranks for folder in rank.checkpoints}


def lacks_room(path: Path | None, folder: RunFolder, roots: Iterable[Path]) -> str:
    """Why no attempt can save what did not fit at `path`, and what to do; empty where there is room again.

    Room is what the newest whole checkpoint of the run takes, and an eighth more for logs and records; a little at
    least, since what ranks had kept for their last records is free now, and is no room.
    """
    kept = newest_complete((folder.path, *roots), run_id=folder.run_id)
    needed = max(LITTLE, 0 if kept is None else kept.manifest.total_bytes * 9 // 8)
    free = None if path is None else free_bytes(path)
    if free is not None and free >= needed:
        return ""
    left = "" if free is None else f" ({format_bytes(free)} left, a checkpoint takes {format_bytes(needed)})"
    until = f"; step {kept.manifest.step} is kept in {kept.path}" if kept is not None else "; nothing was saved before"
    return f"no restart onto a full disk{left}: make room and run the command again{until}"
