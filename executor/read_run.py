"""Reads a whole run folder, also one that a crash left behind (I/O)."""

from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor.names import ENGINE_FILE, attempt_folder
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.records.run import GOES_ON, RunRecord
from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.executor.run_folder import RunFolder, list_runs
from gpu_plan.executor.supervise.processes.alive import supervisor_alive
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.plan.files import load
from gpu_plan.planner.plan.saved import SavedPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A run folder whose run.json cannot be read."""

    run_id: str
    why: str


def read_whole(folder: RunFolder) -> WholeRun:
    """All that `folder` holds. Raises as `RunFolder.read_run` does; other files may be missing."""
    record = folder.read_run()
    plan, problems = _plan(folder)
    latest = len(record.attempts)
    ranks = tuple(rank for rank in folder.ranks() if not latest or rank.attempt == record.attempts[-1].number)
    missing = record.world_size - len(ranks)
    if record.attempts and missing > 0:
        problems = (*problems, f"{missing} of {record.world_size} ranks have no readable record")
    return WholeRun(
        folder=str(folder.path),
        record=record,
        plan=plan,
        ranks=ranks,
        supervisor_alive=_is_led(folder, record),
        engine=_engine(folder),
        earlier={attempt.number: _earlier(folder, attempt.number) for attempt in record.attempts[:-1]},
        problems=problems,
    )


def read_all(working_directory: Path) -> list[WholeRun | Unreadable]:
    """Every run below `working_directory`, oldest first."""
    found: list[WholeRun | Unreadable] = []
    for folder in list_runs(working_directory):
        try:
            found.append(read_whole(folder))
        except PlanError as problem:
            found.append(Unreadable(run_id=folder.run_id, why=str(problem)))
    return found


def _is_led(folder: RunFolder, record: RunRecord) -> bool:
    """Whether somebody looks after the run: a process of this host, or the engine that has its job. Where the engine
    cannot be asked from here, it is taken to have it still."""
    if not (folder.engine / ENGINE_FILE).is_file():
        return supervisor_alive(record)
    if record.status not in GOES_ON:
        return False
    from gpu_plan.executor.engines.jobs import read_engine
    from gpu_plan.executor.engines.registry import find_places

    try:
        found = read_engine(folder)
        return found is None or find_places(found.engine).state(found).where != "ended"
    except PlanError:
        return True


def _engine(folder: RunFolder) -> EngineJob | None:
    if not (folder.engine / ENGINE_FILE).is_file():
        return None
    from gpu_plan.executor.engines.jobs import read_engine

    try:
        return read_engine(folder)
    except PlanError:
        return None


def _plan(folder: RunFolder) -> tuple[SavedPlan | None, tuple[str, ...]]:
    try:
        return load(folder.plan), ()
    except PlanError as problem:
        return None, (str(problem),)


def _earlier(folder: RunFolder, number: int) -> tuple[RankRecord, ...]:
    return tuple(RunFolder(folder.path / attempt_folder(number)).ranks())
