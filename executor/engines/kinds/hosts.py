"""The hosts of `--hosts`: no engine at all, the user starts the same command on each of them.

The agents of `engines.agents` are children of those commands; the first host's has the supervisor.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from gpu_plan.executor.engines.agents.led import AGENT, Led
from gpu_plan.executor.engines.engine import JobState, Settings, Shape
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.own_python import own_command, own_environment


class Hosts(Led):
    """See gpu_plan.executor.engines.engine. `job` is the pid of the first host's agent."""

    name = "hosts"
    title = "the first host"
    keys: Mapping[str, str] = {}
    flags: frozenset[str] = frozenset()
    submit_file = "agents.sh"

    def exported(self, shape: Shape, settings: Settings, files: Mapping[str, str]) -> Mapping[str, str]:
        raise UsageError("--to hosts: --to torchrun writes what each host runs")

    def command(self, folder: Path) -> Sequence[str]:
        return ()

    def how_to(self, shape: Shape) -> Sequence[str]:
        return ()

    def state(self, job: EngineJob) -> JobState:
        try:
            there = psutil.Process(int(job.job)).status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, ValueError):
            there = False
        return JobState(where="running" if there else "ended", words="RUNNING" if there else "ENDED")

    def cancel(self, job: EngineJob) -> None:
        try:
            os.kill(int(job.job), signal.SIGTERM)
        except ProcessLookupError:
            raise UsageError(f"process {job.job}, the agent of the first host, is not on this host") from None


def start_agent(folder: str, hosts: Sequence[str], rank: int, port: int) -> "subprocess.Popen[bytes]":
    """The agent of this host, in a process group of its own: Ctrl-C is the command's to pass on."""
    head = hosts[0].partition(":")[0]
    command = [*own_command(AGENT), folder, head, str(port), str(len(hosts)), str(rank)]
    return subprocess.Popen(
        command, env=own_environment(os.environ), start_new_session=True, stdin=subprocess.DEVNULL
    )  # fmt: skip


ENGINE = Hosts()
