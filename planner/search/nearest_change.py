"""When nothing fits: the smallest change to the job that would."""

from collections.abc import Iterator
from dataclasses import replace

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.cluster import MAX_GPUS, Cluster, node_size
from gpu_plan.planner.search.evaluator import J
from gpu_plan.planner.search.task import F, Task

_LARGEST_NODES = 1024


def nearest_change(task: Task[F, J]) -> str | None:
    """First an option that the user fixed, then more of the same GPUs; None when not even that helps."""
    for words, changed in task.smaller():
        fitting = _fitting(changed)
        if fitting is not None:
            return f"{words} would fit: {task.words(fitting)}"
    seen: frozenset[object] = frozenset()
    for cluster in grown(task.evaluator.cluster):
        larger = task.on(cluster)
        footprints = larger.footprints()
        if footprints <= seen:
            continue
        seen |= footprints
        fitting = _fitting(larger)
        if fitting is not None:
            return f"{cluster.spec} would fit: {task.words(fitting)}"
    return None


def grown(cluster: Cluster) -> Iterator[Cluster]:
    """More of the same GPUs: twice as many until a node is full, then twice as many nodes.

    A platform is a machine: more of its GPUs stand in another, whose RAM is not known.
    """
    if cluster.gpu.is_cpu:
        return
    per_node = max(cluster.gpus_per_node, node_size(cluster.gpu))
    size, nodes = cluster.gpus_per_node, cluster.nodes
    ram, price = (None, None) if cluster.platform else (cluster.host_ram_bytes, cluster.price)
    while size < per_node:
        size = min(size * 2, per_node)
        yield replace(cluster, gpus_per_node=size, platform=None, host_ram_bytes=ram, price=price)
    while nodes < _LARGEST_NODES and 2 * nodes * per_node <= MAX_GPUS:
        nodes *= 2
        yield replace(cluster, nodes=nodes, gpus_per_node=per_node, platform=None, host_ram_bytes=ram, price=price)


def _fitting(task: Task[F, J]) -> J | None:
    """None also where the changed job makes no sense: a class whose layers take no quantised cache, for one."""
    try:
        return task.fitting()
    except (InputError, UsageError):
        return None
