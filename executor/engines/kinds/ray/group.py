"""The driver of a run's job: Ray Train holds one worker on each node, the first of which runs the supervisor.

The group of workers is what an allocation is elsewhere. Where a worker or its node dies, Ray Train ends all of it and
begins it again (FailureConfig), and the supervisor goes on from the run's newest whole checkpoint. Its launches reach
the nodes by `nodes`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLACES, ADDRESS, JOB, STARTS, FAILURES = (
    f"GPU_PLAN_RAY_{name}" for name in ("PLACES", "ADDRESS", "JOB", "STARTS", "FAILURES")
)
AGAIN = 75
"""Exit code of a supervisor that wants the group begun again (EX_TEMPFAIL)."""
_OWN = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
    "ACCELERATE_TORCH_DEVICE",
)  # fmt: skip
"""What Ray Train sets for its worker (ray/train/torch/config.py); ranks have their own, and a device each."""
_FOREVER = 10**7
"""Seconds for which the workers wait for the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the driver is to do, as plain values."""

    nodes: int
    resources: Mapping[str, float]
    """Of each node."""
    words: Sequence[str]
    """What runs."""
    each: bool = False
    """Whether every node runs it, told apart by PET_NODE_RANK; else the first alone."""
    setup: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str
    log: str = ""
    """File for what it writes; empty for Ray's own log of the job."""
    folder: str
    """For Ray Train's own files, on storage that every node sees."""
    guard: str
    """Path of gpu_plan.executor.engines.agents.guard on the nodes."""
    failures: int = 0
    record: str = ""
    """File whose `exit_code` the driver ends with."""


def run(wanted: Wanted) -> int:
    """Takes the nodes, runs, and gives the exit code."""
    import ray
    from ray.exceptions import RayError
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    # By their content: Ray's workers need not have this package.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"))
    code = 0
    try:
        TorchTrainer(
            _node,
            train_loop_config={"wanted": wanted},
            torch_config=TorchConfig(backend="gloo", timeout_s=_FOREVER),
            scaling_config=ScalingConfig(
                num_workers=wanted.nodes,
                use_gpu=wanted.resources.get("GPU", 0) > 0,
                resources_per_worker=dict(wanted.resources),
                placement_strategy="STRICT_SPREAD" if wanted.nodes > 1 else "PACK",
            ),
            run_config=RunConfig(
                failure_config=FailureConfig(max_failures=wanted.failures), storage_path=wanted.folder
            ),
        ).fit()
    except (RayError, RuntimeError) as error:
        print(f"plan: Ray Train ended: {' '.join(str(error).split())[:500]}", file=sys.stderr, flush=True)
        code = 1
    return _told(wanted.record) if wanted.record and _told(wanted.record) is not None else code  # type: ignore[return-value]


def _told(record: str) -> int | None:
    with Path(record).open(encoding="utf-8") as file:
        found = json.load(file).get("exit_code")
    return found if isinstance(found, int) else None


def _node(config: dict[str, Any]) -> None:
    """On each node."""
    import ray
    import torch.distributed as dist
    from ray.train import get_context

    wanted: Wanted = config["wanted"]
    rank, context = get_context().get_world_rank(), ray.get_runtime_context()
    mine = {
        "node": context.get_node_id(),
        "address": ray.util.get_node_ip_address(),
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    places: list[Any] = [mine] * wanted.nodes
    if wanted.nodes > 1:
        dist.all_gather_object(places, mine)
    code = 0
    if wanted.each or rank == 0:
        code = _start(wanted, rank, places, context.gcs_address)
    if wanted.nodes > 1:
        dist.barrier()
    if code == AGAIN or (code and wanted.each):
        raise RuntimeError(f"{wanted.words[0]} ended with {code} on node {rank}")


def _start(wanted: Wanted, rank: int, places: Sequence[Mapping[str, str]], cluster: str) -> int:
    """Runs the words here, under the guard."""
    inherited = {name: value for name, value in os.environ.items() if name not in _OWN}
    more = {
        PLACES: json.dumps(places),
        ADDRESS: cluster,
        FAILURES: str(wanted.failures),
        STARTS: str(_starts(Path(wanted.folder) / "starts", rank)),
        "PET_NODE_RANK": str(rank),
    }
    lines = "\n".join([*wanted.setup, 'exec "$@"'])
    command = [sys.executable, "-S", wanted.guard, "sh", "-c", lines, "sh", *wanted.words]
    with open(wanted.log or os.devnull, "ab") as log:
        out = log if wanted.log else None
        started = subprocess.Popen(
            command, env={**inherited, **wanted.environment, **more}, cwd=wanted.directory, stdout=out,
            stderr=subprocess.STDOUT if wanted.log else None, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            return started.wait()
        except BaseException:
            started.send_signal(signal.SIGTERM)
            raise


def _starts(path: Path, rank: int) -> int:
    """How often the group has begun before, as the first node counts."""
    if rank:
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        file.write("begun\n")
        file.seek(0)
        return len(file.readlines()) - 1
