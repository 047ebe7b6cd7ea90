"""The one GPU that a block is measured on."""

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.options.cluster import find_cluster


def one_gpu(gpu: str) -> Cluster:
    """The GPU of that name alone. InputError for an unknown name, UsageError for a CPU or more than one GPU."""
    cluster = find_cluster(gpu)
    if cluster.gpu.is_cpu or cluster.world_size != 1:
        raise UsageError(f"gpu={gpu!r}: a block is measured on one GPU, named like A100-40GB or T4")
    return cluster
