"""From which checkpoint the next attempt goes on (I/O)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor.checkpoints.find import newest_complete, search
from gpu_plan.executor.checkpoints.resume import decide_resume, make_ready, plan_resume
from gpu_plan.executor.inference.job import is_inference
from gpu_plan.executor.job import Job
from gpu_plan.executor.names import CONVERTED_FOLDER
from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.plan.figures import StrategyChoice


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
    notes = [f"skipped {one.path}: {one.reason}" for one in looked.passed_over]
    found = looked.newest
    if found is None:
        return Resumption(notes=(*notes, "this run has no complete checkpoint: from the beginning"))
    strategy = job.saved.plan.strategy
    resume = plan_resume(found, job.saved, strategy.world_size)
    try:
        path = make_ready(resume, folder.path / CONVERTED_FOLDER)
    except PlanError as error:
        return Resumption(notes=(*notes, f"{error}: from the beginning"))
    if path != found.path:
        notes.append(f"{found.path} was converted for {strategy.name}")
    return Resumption(path=path, step=found.manifest.step, notes=(*notes, *resume.notes))


def keeps_progress(folder: RunFolder, roots: Iterable[Path]) -> Callable[[StrategyChoice], bool]:
    """Whether a strategy can go on from what this run has saved; true for any where nothing was saved."""
    found = newest_complete((folder.path, *roots), run_id=folder.run_id)

    def keeps(strategy: StrategyChoice) -> bool:
        return found is None or decide_resume(found, strategy.name, strategy.world_size).refused is None

    return keeps


def checkpoint_roots(ranks: Iterable[RankRecord], working_directory: Path) -> set[Path]:
    """Folders in which ranks saved checkpoints, wherever the script put them."""
    return {(working_directory / folder).parent for rank in ranks for folder in rank.checkpoints}
