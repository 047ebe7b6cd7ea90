"""Reads a whole run folder, also one that a crash left behind (I/O)."""

from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor.names import attempt_folder
from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.records.run import RunRecord
from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.executor.run_folder import RunFolder, list_runs
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.plan.files import load
from gpu_plan.planner.plan.saved import SavedPlan

_SLACK_SECONDS = 2.0
"""Start times of processes are told in clock ticks since the boot, whose own time is known to a second."""


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
        supervisor_alive=supervisor_alive(record),
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


def supervisor_alive(record: RunRecord) -> bool:
    """Whether the process that wrote `record` lives: the same number, and not begun after the record was written."""
    import psutil

    try:
        began = float(psutil.Process(record.supervisor_pid).create_time())
    except (psutil.Error, ValueError):
        return False
    return began <= record.updated + _SLACK_SECONDS


def _plan(folder: RunFolder) -> tuple[SavedPlan | None, tuple[str, ...]]:
    try:
        return load(folder.plan), ()
    except PlanError as problem:
        return None, (str(problem),)


def _earlier(folder: RunFolder, number: int) -> tuple[RankRecord, ...]:
    return tuple(RunFolder(folder.path / attempt_folder(number)).ranks())
