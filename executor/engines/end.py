"""Ends runs: those of engines through them, those of this machine by a signal (I/O)."""

import contextlib
import os
import signal
import time
from dataclasses import replace

from gpu_plan.executor.engines.engine import JobState
from gpu_plan.executor.engines.jobs import read_engine
from gpu_plan.executor.engines.registry import find_places
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.run import GOES_ON, RunRecord
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.supervise.processes.alive import supervisor_alive
from gpu_plan.planner.errors import UsageError

_CANCELLED = 143
"""As of a job that SIGTERM ended."""
_LOST = 125
_TAKEN = ("interrupted", "lost", "launcher_failed")


def cancel(folder: RunFolder) -> str:
    """Asks for the end of a run, and says what was done. UsageError for one that is over already."""
    record = folder.read_run()
    found = read_engine(folder)
    if record.status not in GOES_ON and not _begins_again(record, found):
        raise UsageError(f"run {folder.run_id} is over already: {record.status.replace('_', ' ')}")
    if found is not None:
        engine = find_places(found.engine)
        engine.cancel(found)
        return f"{engine.title} was told to cancel job {found.job}"
    if not supervisor_alive(record):
        raise UsageError(f"process {record.supervisor_pid}, which led run {folder.run_id}, is not on this host")
    os.kill(record.supervisor_pid, signal.SIGTERM)
    return f"SIGTERM was sent to process {record.supervisor_pid}, which ends the run"


def _begins_again(record: RunRecord, found: EngineJob | None) -> bool:
    """Whether an engine that took a run's nodes back still has its job: between two starts the record says how the
    first one ended."""
    if found is None or record.status not in _TAKEN:
        return False
    return find_places(found.engine).state(found).where in ("queued", "running")


def settled(folder: RunFolder, seconds: float = 30.0) -> RunRecord:
    """The run's record once it is over, or as it stands after so long."""
    until = time.monotonic() + seconds
    found = read_engine(folder)
    while time.monotonic() < until:
        record = folder.read_run()
        if record.status not in GOES_ON:
            return record
        if found is not None:
            engine = find_places(found.engine)
            state = engine.state(found)
            if state.where == "ended":
                return settle(folder, state, engine.title, found.job)
        time.sleep(0.5)
    return folder.read_run()


def settle(folder: RunFolder, state: JobState, title: str, job: str) -> RunRecord:
    """What run.json says of a run whose job the engine has ended; it is completed where nobody in the job could."""
    record = folder.read_run()
    if record.status not in GOES_ON:
        return record
    code = _CANCELLED if state.cancelled else state.exit_code or _LOST
    attempts = record.attempts
    if attempts and attempts[-1].ended is None:
        last = replace(attempts[-1], ended=time.time(), cause="interrupted", explanation=f"{title}: {state.words}")
        attempts = (*attempts[:-1], last)
    ended = replace(
        record,
        status="interrupted" if state.cancelled else "lost",
        exit_code=code,
        ended=time.time(),
        updated=time.time(),
        message=f"{title} job {job}: {state.words}",
        attempts=attempts,
    )
    with contextlib.suppress(OSError):
        folder.write_run(ended)
    return ended
