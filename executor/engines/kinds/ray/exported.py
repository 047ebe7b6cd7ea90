"""The driver that `plan export --to ray` writes: each node's launch by one worker of Ray Train, without this package.

The worker's own process group (ray.train.torch's backend sets it up) serves to tell the nodes where they meet; ranks
themselves are torchrun's. FailureConfig is Ray's: where a node or a launch fails, Ray starts all of it again.
"""

from gpu_plan.executor.engines.engine import Settings, Shape
from gpu_plan.planner.errors import UsageError

_DRIVER = '''\
"""Runs command.sh once on each of {nodes} nodes by Ray Train; words behind it go to the script.

python job.py, where `ray start` has been, or: ray job submit --working-dir . -- python job.py
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import ray
import torch.distributed
from ray.train import FailureConfig, RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {environment!r}
SETUP = {setup!r}
# Of the worker that starts the launcher; the ranks have their own.
OWN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
       "ACCELERATE_TORCH_DEVICE")


def node(config):
    rank = get_context().get_world_rank()
    with socket.socket() as probe:
        probe.bind(("", 0))
        meet = [ray.util.get_node_ip_address(), probe.getsockname()[1]]
    if get_context().get_world_size() > 1:
        torch.distributed.broadcast_object_list(meet, src=0)
    folder = HERE if (HERE / "command.sh").is_file() else Path.cwd()
    variables = {{name: value for name, value in os.environ.items() if name not in OWN}}
    variables.update(ENVIRONMENT, PET_MASTER_ADDR=meet[0], PET_MASTER_PORT=str(meet[1]), PET_NODE_RANK=str(rank))
    # torchrun of the Python that runs this worker, whatever `ray start` had on its PATH.
    variables["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), variables.get("PATH", os.defpath)])
    lines = "\\n".join([*SETUP, 'exec sh "$0" "$@"'])
    command = ["sh", "-c", lines, str(folder / "command.sh"), *config["words"]]
    # Where Ray ends this worker, the launcher ends with it.
    last_word = lambda: ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    code = subprocess.run(command, env=variables, cwd=config["directory"], preexec_fn=last_word).returncode
    if code:
        raise RuntimeError(f"command.sh ended with {{code}} on node {{rank}}, {{socket.gethostname()}}")


if __name__ == "__main__":
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"))
    TorchTrainer(
        node,
        train_loop_config={{"words": sys.argv[1:], "directory": os.getcwd()}},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers={nodes}, use_gpu={use_gpu}, resources_per_worker={resources!r}, placement_strategy={strategy!r}
        ),
        run_config=RunConfig(failure_config=FailureConfig(max_failures={failures}), storage_path={storage!r}),
    ).fit()
'''


def driver_text(shape: Shape, settings: Settings) -> str:
    """Content of `job.py`. Pure. UsageError for a setting that is no number."""
    return _DRIVER.format(
        nodes=shape.nodes,
        environment=dict(settings.environment),
        setup=list(settings.setup),
        use_gpu=shape.gpus_per_node > 0,
        resources=resources_of(shape, settings),
        strategy="STRICT_SPREAD" if shape.nodes > 1 else "PACK",
        failures=count(settings.values.get("max-failures", "0"), "max-failures"),
        storage=settings.values.get("storage"),
    )


def resources_of(shape: Shape, settings: Settings) -> dict[str, float]:
    """What each node's worker takes. Pure. UsageError as `count`."""
    cpus = count(settings.values.get("cpus-per-node", str(shape.ranks_per_node)), "cpus-per-node")
    return {"CPU": cpus, **({"GPU": shape.gpus_per_node} if shape.gpus_per_node else {})}


def count(text: str, key: str) -> int:
    """A whole number of 0 or more; UsageError for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise UsageError(f"ray.{key}={text}: a whole number")
    return int(text)
