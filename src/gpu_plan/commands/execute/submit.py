"""`--on ENGINE`: gives the job to the engine and follows it until its end."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.notes import say
from gpu_plan.planner.errors import ExitCode

if TYPE_CHECKING:
    from gpu_plan.executor.engines.engine import Runs, Settings
    from gpu_plan.executor.job import Job
    from gpu_plan.executor.records.run import Phase

_FAILED = 125


def submit_and_follow(
    job: "Job", engine: "Runs", settings: "Settings", *, hang_seconds: str | None, phases: "tuple[Phase, ...]"
) -> int:
    """The job's own exit code. Ctrl-C ends the following alone: the job goes on, and it is said how to end it."""
    from gpu_plan.executor.engines.follow import Follower
    from gpu_plan.executor.engines.submit import submit
    from gpu_plan.executor.live.show import live

    folder, given = submit(job, engine, settings, hang_seconds=hang_seconds, phases=phases)
    say(
        f"{engine.title} has it as job {given.job}; Ctrl-C ends the following, not the job, which"
        f" `plan cancel {folder.run_id}` ends"
    )
    try:
        with live() as observe:
            record = Follower(folder=folder, engine=engine, job=given, observe=observe).wait()
    except KeyboardInterrupt:
        say(f"no longer followed: job {given.job} goes on; `plan report {folder.run_id}` reads it, `plan cancel"
            f" {folder.run_id}` ends it")  # fmt: skip
        return ExitCode.INTERRUPTED
    return record.exit_code if record.exit_code is not None else _FAILED


def show(job: "Job", engine: "Runs", settings: "Settings") -> int:
    """--dry-run: the submit file and the launch files of one node, nothing written."""
    from dataclasses import replace

    from gpu_plan.commands.execute.shown import shown
    from gpu_plan.executor.engines.submit import submit_text
    from gpu_plan.executor.job import Placement
    from gpu_plan.executor.launch.prepare import prepare
    from gpu_plan.executor.run_folder import RunFolder

    folder = RunFolder(job.working_directory / "runs" / "RUN")
    placed = replace(job, placement=Placement(engine=engine.name))
    launch = prepare(placed, attempt=1, folder=folder, resume_from=None)
    name = Path(folder.engine.name) / engine.submit_file
    files = {str(name): submit_text(job, engine, settings, folder), **launch.files}
    sys.stdout.write(
        shown(
            replace(
                launch,
                files=files,
                command=tuple(engine.submitting(folder.engine / engine.submit_file, settings)),
                environment={},
            )
        )
    )
    for line in (*launch.notes, *(f"not applied: {line}" for line in launch.not_applied)):
        say(line)
    return ExitCode.OK
