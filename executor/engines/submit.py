"""Gives a job to an engine (I/O)."""

import shutil
import time
from dataclasses import replace

from gpu_plan.executor.engines.engine import Runs, Settings
from gpu_plan.executor.engines.export import shape_of
from gpu_plan.executor.engines.jobs import Submitted, write_engine, write_job
from gpu_plan.executor.job import Job
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.run import Phase
from gpu_plan.executor.run_folder import RunFolder, create
from gpu_plan.executor.supervise.ledger import new_record
from gpu_plan.planner.own_python import ROOT, own_command
from gpu_plan.planner.plan.files import write_text

LEAD = "gpu_plan.executor.engines.lead"


def submit(
    job: Job, engine: Runs, settings: Settings, *, hang_seconds: str | None = None, phases: tuple[Phase, ...] = ()
) -> tuple[RunFolder, EngineJob]:
    """The run's folder, and which job of the engine it is.

    Where the engine refuses, nothing is left: UsageError with its own words, UnreachableError where it is not there.
    """
    engine.check(settings)
    folder = prepared(job, engine.name, settings, hang_seconds=hang_seconds, phases=phases)
    try:
        file = folder.engine / engine.submit_file
        write_text(file, submit_text(job, engine, settings, folder), force=True)
        found = engine.submit(file, settings)
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise
    write_engine(folder, found)
    return folder, found


def prepared(
    job: Job, engine: str, settings: Settings, *, hang_seconds: str | None = None, phases: tuple[Phase, ...] = ()
) -> RunFolder:
    """A new run folder that holds all a supervisor needs which an engine starts, or nothing is left."""
    folder = RunFolder(create(job.working_directory).path.absolute())
    given = Submitted(
        engine=engine,
        nodes=shape_of(job.saved, job.script.stem).nodes,
        submitted=time.time(),
        script=str(job.script),
        script_arguments=job.arguments,
        working_directory=str(job.working_directory),
        max_restarts=job.max_restarts,
        environment={**job.environment, **settings.environment},
        command=job.command,
        leave_running=job.leave_running,
        allow_deviation=job.allow_deviation,
        stop_on_nan=job.stop_on_nan,
        hang_seconds=hang_seconds,
        check_parameters=job.check_parameters,
        requeue=settings.flag("requeue", True),
        preflight=settings.flag("preflight", True),
    )
    try:
        write_job(folder, given, job)
        folder.write_run(replace(new_record(job, folder.run_id), status="queued", phases=phases))
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise
    return folder


def submit_text(job: Job, engine: Runs, settings: Settings, folder: RunFolder) -> str:
    """Content of the submit file. Pure."""
    shape = shape_of(job.saved, job.script.stem)
    lead = lead_words(folder, settings)
    return engine.job_file(shape, settings, folder=folder.engine, lead=lead, python_path=ROOT)


def lead_words(folder: RunFolder, settings: Settings) -> list[str]:
    """What supervises the run inside the job."""
    words = own_command(LEAD)
    return [settings.values.get("python", words[0]), *words[1:], str(folder.path)]
