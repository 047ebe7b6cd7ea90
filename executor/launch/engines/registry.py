"""Ways to launch: an explicit registry. A new engine is one module and one line here."""

from collections.abc import Callable, Mapping
from importlib import import_module

from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.target import Target
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.nearest import did_you_mean

Engine = Callable[[Target], LaunchFiles]
"""From a target to everything that launches it. Raises UsageError for a strategy that the engine cannot run."""

ENGINES: Mapping[str, str] = {
    "accelerate": "gpu_plan.executor.launch.engines.accelerate",
    "deepspeed": "gpu_plan.executor.launch.engines.deepspeed",
    "torchrun": "gpu_plan.executor.launch.engines.torchrun",
}
"""Module by name; each has a function `launch_files` that is an Engine, and is imported only when it is chosen."""
OWN_LOOPS: Mapping[str, str] = {
    "megatron-lm": "gpu_plan.executor.launch.engines.megatron_lm",
    "megatron-bridge": "gpu_plan.executor.launch.engines.megatron_bridge",
}
"""Those that run a library's own model in its own loop, of a plan for one."""
PLACING = ("slurm", "ray", "kubeflow", "kubernetes", "skypilot")
"""Engines that give the nodes too: see gpu_plan.executor.engines."""


def find_engine(name: str) -> Engine:
    """The engine called `name`; UsageError for an unknown one."""
    module = {**ENGINES, **OWN_LOOPS}.get(name)
    if module is not None:
        engine: Engine = import_module(module).launch_files
        return engine
    known = (*ENGINES, *OWN_LOOPS, *PLACING)
    raise UsageError(f"--to {name!r} is not an engine: use {', '.join(known)}.{did_you_mean(name, known, limit=1)}")
