"""Ray: a driver that runs each node's launch by Ray Train, one worker of it on each node.

The worker's own process group (ray.train.torch's backend sets it up) serves to tell the nodes where they meet; ranks
themselves are torchrun's. FailureConfig is Ray's: where a node or a launch fails, Ray starts all of it again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_plan.executor.engines.engine import Settings, Shape
from gpu_plan.planner.errors import UsageError

_KEYS: Mapping[str, str] = {
    "cpus-per-node": "processors of each node that its ranks share; default: one for each rank",
    "max-failures": "how often Ray starts all of it again; default: 0",
    "storage": "a folder that every node sees, for Ray Train's own files",
}
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
OWN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


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


class Ray:
    """See gpu_plan.executor.engines.engine."""

    name = "ray"
    title = "Ray"
    keys = _KEYS
    flags: frozenset[str] = frozenset()
    submit_file = "job.py"

    def exported(self, shape: Shape, settings: Settings, files: Mapping[str, str]) -> Mapping[str, str]:
        cpus = _count(settings.values.get("cpus-per-node", str(shape.ranks_per_node)), "cpus-per-node")
        resources = {"CPU": cpus, **({"GPU": shape.gpus_per_node} if shape.gpus_per_node else {})}
        text = _DRIVER.format(
            nodes=shape.nodes,
            environment=dict(settings.environment),
            setup=list(settings.setup),
            use_gpu=shape.gpus_per_node > 0,
            resources=resources,
            strategy="STRICT_SPREAD" if shape.nodes > 1 else "PACK",
            failures=_count(settings.values.get("max-failures", "0"), "max-failures"),
            storage=settings.values.get("storage"),
        )
        return {self.submit_file: text}

    def command(self, folder: Path) -> Sequence[str]:
        return ("ray", "job", "submit", "--working-dir", str(folder), "--", "python", self.submit_file)

    def how_to(self, shape: Shape) -> Sequence[str]:
        return (
            f"Submit:  ray job submit --working-dir . -- python {self.submit_file}  (words behind it go to the script)",
            f"Or, on a machine of the cluster: python {self.submit_file}",
            "Look:    ray job list, ray job logs JOB",
            "End:     ray job stop JOB",
            "Every node needs torch and accelerate in Ray's own Python environment, and ray[train].",
        )


def _count(text: str, key: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise UsageError(f"ray.{key}={text}: a whole number")
    return int(text)


ENGINE = Ray()
