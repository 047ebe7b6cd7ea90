"""What an engine is given of a run, and what is known of it there: files of the run folder (I/O).

engine/job.json      what is to be executed; the plan stands in plan.json
engine/engine.json   which engine, which job of it
engine/engine.log    what the engine's own job wrote
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from gpu_plan.executor.job import Job
from gpu_plan.executor.names import ENGINE_FILE
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.run import GOES_ON, RunRecord
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.planner.errors import UnreachableError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.plan.codec import MAX_BYTES, decode, dump, load_object
from gpu_plan.planner.plan.files import load, save, write_text

T = TypeVar("T")
_UNFINISHED = (*GOES_ON, "interrupted", "launcher_failed", "lost")
JOB_FILE, LOG_FILE = "job.json", "engine.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The whole of `engine/job.json`."""

    schema_version: int = 1
    engine: str
    nodes: int
    submitted: float
    """Seconds since the epoch."""
    script: str
    script_arguments: tuple[str, ...] = ()
    working_directory: str
    max_restarts: int
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    leave_running: tuple[str, ...] = ()
    allow_deviation: bool = False
    stop_on_nan: bool = False
    hang_seconds: str | None = None
    check_parameters: bool = True
    requeue: bool = True
    """Whether the run goes on when the engine gives it nodes anew."""
    preflight: bool = True


def write_job(folder: RunFolder, given: Submitted, job: Job) -> None:
    """Puts the plan and the job into the run folder."""
    folder.engine.mkdir(exist_ok=True)
    save(job.saved, folder.plan, force=True)
    write_text(folder.engine / JOB_FILE, dump(given) + "\n", force=True)


def read_job(folder: RunFolder) -> tuple[Submitted, Job]:
    """What `write_job` wrote. UnreachableError where it is not there, InputError where it makes no sense."""
    given = _read(Submitted, folder.engine / JOB_FILE)
    return given, Job(
        saved=load(folder.plan),
        script=Path(given.script),
        arguments=given.script_arguments,
        working_directory=Path(given.working_directory),
        max_restarts=given.max_restarts,
        environment=given.environment,
        command=given.command,
        leave_running=given.leave_running,
        allow_deviation=given.allow_deviation,
        stop_on_nan=given.stop_on_nan,
        check_parameters=given.check_parameters,
    )


def write_engine(folder: RunFolder, found: EngineJob) -> None:
    """Keeps which job of which engine this run is."""
    write_text(folder.engine / ENGINE_FILE, dump(found) + "\n", force=True)


def read_engine(folder: RunFolder) -> EngineJob | None:
    """None for a run that no engine placed. Raises as `read_job` for one whose file makes no sense."""
    if not os.path.isfile(folder.engine / ENGINE_FILE):
        return None
    return _read(EngineJob, folder.engine / ENGINE_FILE)


def ended_with(record: RunRecord) -> int | None:
    """Exit code of a run that is over; None for one that goes on where its engine starts it again."""
    return None if record.status in _UNFINISHED else record.exit_code


def _read(kind: type[T], path: Path) -> T:
    try:
        content = read_bytes(path, MAX_BYTES + 1)
    except OSError as error:
        raise UnreachableError(f"{path} cannot be read: {error.strerror or error}") from None
    return decode(kind, load_object(content, str(path)), str(path))
