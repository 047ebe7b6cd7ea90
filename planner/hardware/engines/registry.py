"""Which engine a specification asks, and inside which one this process is. A new engine is a module and lines here."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.engines import kubernetes, ray, skypilot, slurm
from gpu_plan.planner.hardware.engines.nodes import Node, cluster_from, spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How an engine is asked from outside."""

    split: Callable[[str], tuple[str, str]]
    """Of what follows `ENGINE:`, which nodes, and which devices' name."""
    nodes_of: Callable[[str], list[Node]]


_ENGINES: Mapping[str, Asked] = {
    "slurm": Asked(split=slurm.split, nodes_of=slurm.nodes_of),
    "ray": Asked(split=ray.split, nodes_of=ray.nodes_of),
    "k8s": Asked(split=kubernetes.split, nodes_of=kubernetes.nodes_of),
    "kubernetes": Asked(split=kubernetes.split, nodes_of=kubernetes.nodes_of),
}
_ASKED = re.compile(
    rf"(?:(?P<count>[1-9][0-9]{{0,5}})\s*x\s*)?(?P<engine>{'|'.join(_ENGINES)})(?::(?P<place>.*))?", re.IGNORECASE
)


def asked_of_an_engine(text: str, extra_gpus: Mapping[str, object] | None = None) -> Cluster | None:
    """The cluster of `slurm:PARTITION`, `2xslurm:PARTITION`, `slurm:PARTITION:h100`, `ray:`, `k8s:pool=a`; None for
    another text.

    InputError and UnreachableError in one line, as the engine's module raises them.
    """
    match = _ASKED.fullmatch(text.strip())
    if match is None:
        return None
    name = match["engine"].lower()
    asked = _ENGINES[name]
    place, gpu = asked.split(match["place"] or "")
    nodes = asked.nodes_of(place)
    count = int(match["count"]) if match["count"] else None
    where = f"{name}:{place}".rstrip(":")
    return cluster_from(nodes, where, name=gpu, count=count, extra_gpus=extra_gpus)


def inside_an_engine(extra_gpus: Mapping[str, object] | None = None) -> Cluster | None:
    """The allocation, job or task in which this process is; None where it is in none."""
    from gpu_plan.planner.hardware.detect import detect_cluster

    if slurm.allocation() is not None:
        if slurm.on_a_node():
            here = detect_cluster()
            if not (here.gpu.is_cpu and slurm.gives_gpus()):  # else the vendor's tool is not installed
                return slurm.as_allocated(here)
        return cluster_from(slurm.allocated_nodes(), "auto (SLURM's allocation)", extra_gpus=extra_gpus)
    if ray.inside():
        return cluster_from(ray.nodes_of(""), "auto (Ray's nodes)", extra_gpus=extra_gpus)
    nodes = kubernetes.pods() or skypilot.task()
    return None if nodes is None else spread(detect_cluster(), nodes)
