"""What the supervisor asks of agents: the traits of engines that start one process on each node."""

import json
import os
import shlex
from pathlib import Path

from gpu_plan.executor.engines.agents.store import PLACE
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.planner.own_python import own_command

AGENT = "gpu_plan.executor.engines.agents.agent"
_LAUNCH = "gpu_plan.executor.engines.agents.launch"


def guarded() -> list[str]:
    """Words before a command that is to end when whoever started it goes."""
    return own_command("gpu_plan.executor.engines.agents.guard")


class Led:
    """The part of gpu_plan.executor.engines.engine.Places that is asked inside the job."""

    leaves: int | None = 75
    """See agent.AGAIN."""
    ask_seconds = 3.0

    def let_go(self, job: EngineJob) -> str:
        return ""

    def on_each_node(self, nodes: int) -> tuple[str, ...]:
        return (*own_command(_LAUNCH), str(nodes))

    def head(self) -> str:
        return str(json.loads(os.environ[PLACE])["head"])

    def sweep(self) -> tuple[str, ...]:
        return (*own_command(_LAUNCH), "--sweep")

    def restarts(self) -> int:
        return int(json.loads(os.environ.get(PLACE, "{}")).get("starts", 0))

    def job_number(self) -> str:
        return ""  # whoever submitted it has written which one it is

    def again(self) -> bool:
        return True  # the agents wait in their rendezvous until every node is there


def agent_lines(run: Path, nodes: int, python: str, *, log: Path) -> list[str]:
    """Shell that starts a node's agent, where PET_MASTER_ADDR, PET_MASTER_PORT and PET_NODE_RANK are set. Pure."""
    there = "plan: $run is not on $(hostname): the working directory must lie on storage that every node shares"
    return [
        f"run={shlex.quote(str(run))}",
        f'[ -e "$run/run.json" ] || {{ echo "{there}" >&2; exit 4; }}',
        f'exec {shlex.quote(python)} -P -m {AGENT} "$run" "$PET_MASTER_ADDR" "${{PET_MASTER_PORT:-29500}}" {nodes}'
        f' "${{PET_NODE_RANK:-0}}" >> {shlex.quote(str(log))} 2>&1',
    ]
