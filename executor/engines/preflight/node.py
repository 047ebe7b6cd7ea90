"""What one node sees: `python -m gpu_plan.executor.engines.preflight.node FOLDER ENGINE NODES` (I/O).

Writes `node-N.json` into FOLDER, N being PET_NODE_RANK. Nodes find each other by a file of the folder, so that one
which does not share it is found out.
"""

import hashlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor.doctor.facts import gather
from gpu_plan.executor.doctor.machine import Check, examine_machine, need_of
from gpu_plan.executor.engines.registry import find_places
from gpu_plan.executor.names import PLAN_FILE
from gpu_plan.executor.supervise.follow.hosts import free_port
from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.plan.files import load, write_text

MEET_FILE = "meet"
_PATIENCE = 60.0
"""Seconds to wait for the first node's file, and for the others in the all-reduce."""
_LINGER = 10.0
_COMPARED = ("torch", "accelerate", "transformers", "deepspeed", "peft", "gpu-plan", "nvidia-nccl-cu13")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The whole of `node-N.json`."""

    node: int
    host: str
    checks: tuple[Check, ...]
    versions: Mapping[str, str]
    """Of the packages that ranks must have alike."""
    plan: str | None
    """Digest of the plan as this node reads it; None where there is none."""
    reduce_seconds: float | None = None
    """Of one all-reduce over all nodes, joining included; None on one node, and where it failed."""
    reduce_problem: str = ""


def file_of(node: int) -> str:
    return f"node-{node}.json"


def main(folder: Path, engine: str, nodes: int) -> int:
    """Looks and writes; 4 where the folder is not there."""
    if not folder.is_dir():
        print(f"plan: {folder} is not on {socket.gethostname()}: it is not shared", file=sys.stderr)
        return 4
    number = int(os.environ.get("PET_NODE_RANK", "0"))
    plan = folder / PLAN_FILE
    saved = load(plan) if plan.is_file() else None
    facts = gather(Path.cwd(), ports=())
    seconds, problem = _reduce(folder, engine, number, nodes, on_cpu=not facts.gpus) if nodes > 1 else (None, "")
    said = Said(
        node=number,
        host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        checks=examine_machine(facts, None if saved is None else need_of(saved)),
        versions={name: facts.packages[name] for name in _COMPARED if name in facts.packages},
        plan=hashlib.sha256(plan.read_bytes()).hexdigest() if saved is not None else None,
        reduce_seconds=seconds,
        reduce_problem=problem,
    )
    write_text(folder / file_of(number), dump(said) + "\n", force=True)
    _await_others(folder, nodes)
    return 0


def _await_others(folder: Path, nodes: int) -> None:
    """A node that leaves closes connections over which others may still receive."""
    until = time.monotonic() + _LINGER
    while time.monotonic() < until and not all((folder / file_of(number)).is_file() for number in range(nodes)):
        time.sleep(0.1)


def _reduce(folder: Path, engine: str, number: int, nodes: int, *, on_cpu: bool) -> tuple[float | None, str]:
    """Seconds of an all-reduce among one process of each node, or why there was none."""
    meet = folder / MEET_FILE
    if number == 0:
        write_text(meet, f"{find_places(engine).head()} {free_port()}\n", force=True)
    until = time.monotonic() + _PATIENCE
    while not meet.is_file():
        if time.monotonic() > until:
            return None, f"{meet} of the first node does not appear here: the folder is not shared"
        time.sleep(0.1)
    host, port = meet.read_text().split()
    return _all_reduce(host, int(port), number, nodes, on_cpu)


def _all_reduce(host: str, port: int, number: int, nodes: int, on_cpu: bool) -> tuple[float | None, str]:
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    began = time.monotonic()
    device = "cuda:0" if not on_cpu and torch.cuda.is_available() else "cpu"
    try:
        dist.init_process_group(
            "nccl" if device != "cpu" else "gloo", init_method=f"tcp://{host}:{port}", rank=number, world_size=nodes,
            timeout=timedelta(seconds=_PATIENCE),
        )  # fmt: skip
        value = torch.full((2**18,), float(number + 1), device=device)
        dist.all_reduce(value)
        total = float(value[0])
    except (RuntimeError, ValueError, OSError) as error:
        return None, " ".join(str(error).split())[:300]
    seconds, wanted = time.monotonic() - began, nodes * (nodes + 1) / 2
    return (seconds, "") if total == wanted else (None, f"it gave {total:g} instead of {wanted:g}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
