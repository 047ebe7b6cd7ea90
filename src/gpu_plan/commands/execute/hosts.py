"""`--hosts` whose working directory all share: the first host leads, the others serve it, and the run is restarted."""

import shutil
import signal
import time
from typing import TYPE_CHECKING

from gpu_plan.notes import say
from gpu_plan.planner.errors import ExitCode

if TYPE_CHECKING:
    import subprocess

    from gpu_plan.executor.job import Job
    from gpu_plan.executor.records.run import Phase
    from gpu_plan.executor.run_folder import RunFolder

_FAILED = 125


def run_on_hosts(job: "Job", *, port: int, hang_seconds: str | None, phases: "tuple[Phase, ...]") -> int | None:
    """The job's own exit code; None where the hosts do not share the working directory, and each has to be its own
    supervisor, which restarts nothing."""
    from gpu_plan.executor.engines.agents.agent import NOT_SHARED

    serve = _lead if job.machine_rank == 0 else _serve
    code = serve(job, port, hang_seconds, phases)
    if code == NOT_SHARED:
        say("the hosts do not share this working directory: each has a run of its own, and none is restarted")
        return None
    return code


def _serve(job: "Job", port: int, hang_seconds: str | None, phases: "tuple[Phase, ...]") -> int:
    from gpu_plan.executor.engines.kinds.hosts import start_agent

    agent = start_agent("-", job.hosts, job.machine_rank, port)
    return _wait(agent)


def _lead(job: "Job", port: int, hang_seconds: str | None, phases: "tuple[Phase, ...]") -> int:
    from dataclasses import replace

    from gpu_plan.executor.engines.engine import Settings
    from gpu_plan.executor.engines.follow import Follower
    from gpu_plan.executor.engines.jobs import write_engine
    from gpu_plan.executor.engines.kinds.hosts import ENGINE, start_agent
    from gpu_plan.executor.engines.submit import prepared
    from gpu_plan.executor.live.show import live
    from gpu_plan.executor.records.engine import EngineJob

    alone = Settings(values={"preflight": "false"})  # as on one host, where this machine alone is looked at
    folder = prepared(replace(job, hosts=()), ENGINE.name, alone, hang_seconds=hang_seconds, phases=phases)
    agent = start_agent(str(folder.path), job.hosts, 0, port)
    found = EngineJob(engine=ENGINE.name, job=str(agent.pid))
    write_engine(folder, found)
    if _without_a_lead(agent, folder):
        shutil.rmtree(folder.path, ignore_errors=True)
        return agent.wait()
    with live() as observe:
        follower = Follower(folder=folder, engine=ENGINE, job=found, observe=observe)
        while True:
            try:
                record = follower.wait()
                break
            except KeyboardInterrupt:  # the run ends, and is followed to its end
                agent.send_signal(signal.SIGINT)
    agent.wait()
    return record.exit_code if record.exit_code is not None else _FAILED


def _without_a_lead(agent: "subprocess.Popen[bytes]", folder: "RunFolder") -> bool:
    """Waits until the hosts have met; whether the agent ended before it started a supervisor."""
    while agent.poll() is None and folder.read_run().status == "queued":
        try:
            time.sleep(0.2)
        except KeyboardInterrupt:
            agent.send_signal(signal.SIGINT)
    return agent.poll() is not None and folder.read_run().status == "queued"


def _wait(agent: "subprocess.Popen[bytes]") -> int:
    interrupted = False
    while True:
        try:
            code = agent.wait()
            return int(ExitCode.INTERRUPTED) if interrupted and code else code
        except KeyboardInterrupt:
            interrupted = True
            agent.send_signal(signal.SIGINT)
