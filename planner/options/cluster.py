"""The cluster that `--gpus` means: this machine's, an engine's, the user's own included (I/O)."""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.hardware.user_gpus import NETWORKS
from gpu_plan.planner.options.config import user_gpus

_NETWORK = "gpu.network"
_ENGINES = ("slurm", "ray", "k8s", "kubernetes")
"""What a specification holds that asks an engine: others do not pay for the engines' modules."""


def find_cluster(text: str, settings: Sequence[str] = ()) -> Cluster:
    """The cluster of `_named`, its nodes joined as `--set gpu.network=` says."""
    return joined(_named(text), settings)


def joined(cluster: Cluster, settings: Sequence[str]) -> Cluster:
    """The cluster by what is said of its network; a word that is none is refused where settings are read."""
    said = [word.partition("=")[2] for word in settings if word.startswith(f"{_NETWORK}=")]
    if not said or said[-1] not in NETWORKS:
        return cluster
    return replace(cluster, gpu=replace(cluster.gpu, network=said[-1]))


def _named(text: str) -> Cluster:
    """`auto` detects this machine's GPUs, or the nodes of the allocation in which this process is; `slurm:PARTITION`,
    `ray:` and `k8s:` ask the engine; everything else is read by `parse_cluster`. InputError or UnreachableError in one
    line.
    """
    if text.strip().lower() == "auto":
        from gpu_plan.planner.hardware.detect import detect_cluster
        from gpu_plan.planner.hardware.engines.registry import inside_an_engine

        return inside_an_engine(user_gpus()) or detect_cluster()
    if any(name in text.lower() for name in _ENGINES):
        from gpu_plan.planner.hardware.engines.registry import asked_of_an_engine

        found = asked_of_an_engine(text, user_gpus())
        if found is not None:
            return found
    return parse_cluster(text, extra_gpus=user_gpus())
