"""From a job to its launch files."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from executor.job import Job
from executor.launch.engines import find_engine
from executor.launch.environment import batch_environment, device_environment, run_environment
from executor.launch.files import LaunchFiles
from executor.launch.target import Target
from executor.run_folder import RunFolder
from executor.script.loop import loop_of
from executor.script.read import read_script

RECORD_SECONDS = 0.5


def prepare(job: Job, *, attempt: int, folder: RunFolder, resume_from: Path | None) -> LaunchFiles:
    """How `job` is launched through Accelerate, each rank observed. Writes nothing; reads the script.

    Raises InputError or UnreachableError for the script.
    """
    script = read_script(job.script)
    target = Target(
        saved=job.saved,
        script=job.script,
        arguments=job.arguments,
        loop=loop_of(script),
        folder=folder.path,
        logs=folder.logs,
        launcher=accelerate_words(),
        hosts=job.hosts,
        machine_rank=job.machine_rank,
        port=job.main_process_port,
        made_by=job.saved.command,
    )
    environment = {
        **batch_environment(target),
        **device_environment(target),
        **run_environment(
            run_id=folder.run_id,
            folder=folder.path,
            attempt=attempt,
            resume_from=resume_from,
            options=runner_options(job),
        ),
        **job.environment,
    }
    return find_engine("accelerate")(replace(target, environment=environment))


def accelerate_words() -> tuple[str, ...]:
    """Accelerate's command line of this very environment, whatever PATH says."""
    beside = Path(sys.executable).parent / "accelerate"
    if beside.is_file():
        return (str(beside),)
    return (sys.executable, "-m", "accelerate.commands.accelerate_cli")


def runner_options(job: Job) -> Mapping[str, object]:
    """What the in-rank runner is told."""
    expected = job.saved.model.parameters if job.check_parameters else None
    return {
        "expected_parameters": expected,
        "rebatch": False,
        "checkpointing": job.saved.plan.strategy.checkpointing,
        "record_seconds": RECORD_SECONDS,
        "oom_snapshot": False,
    }
