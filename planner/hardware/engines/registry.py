"""Which engine a specification asks, and inside which one this process is. A new engine is a module and lines here."""

import re
from collections.abc import Mapping

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.engines import slurm
from gpu_plan.planner.hardware.engines.nodes import cluster_from

_ASKED = re.compile(
    r"(?:(?P<count>[1-9][0-9]{0,5})\s*x\s*)?(?P<engine>slurm)(?::(?P<place>[^:]*)(?::(?P<name>[^:]+))?)?", re.IGNORECASE
)


def asked_of_an_engine(text: str, extra_gpus: Mapping[str, object] | None = None) -> Cluster | None:
    """The cluster of `slurm:PARTITION`, `2xslurm:PARTITION` or `slurm:PARTITION:h100`; None for another text.

    InputError and UnreachableError in one line, as the engine's module raises them.
    """
    match = _ASKED.fullmatch(text.strip())
    if match is None:
        return None
    where = f"slurm:{match['place'] or ''}".rstrip(":")
    nodes = slurm.nodes_of(match["place"] or "")
    count = int(match["count"]) if match["count"] else None
    return cluster_from(nodes, where, name=match["name"] or "", count=count, extra_gpus=extra_gpus)


def inside_an_engine(extra_gpus: Mapping[str, object] | None = None) -> Cluster | None:
    """The allocation in which this process is; None where it is in none."""
    from gpu_plan.planner.hardware.detect import detect_cluster

    nodes = slurm.allocation()
    if nodes is None:
        return None
    if slurm.on_a_node():
        here = detect_cluster()
        if not (here.gpu.is_cpu and slurm.gives_gpus()):  # else the vendor's tool is not installed
            return slurm.as_allocated(here)
    return cluster_from(slurm.allocated_nodes(), "auto (SLURM's allocation)", extra_gpus=extra_gpus)
