"""The machine of a row, as `--gpus` takes it."""

import re

from benchmarks.accuracy.row import Row, SetAside, needed, text, whole
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster

_MOST_GPUS = 2**17


def cluster_of(row: Row) -> Cluster:
    """Nodes and GPUs. SetAside when the row does not say, or names a GPU that is not known."""
    count = needed(row, "gpu.count", "number of GPUs", _MOST_GPUS)
    nodes = whole(row, "gpu.nodes") or 1
    name = text(row, "gpu.model")
    if not name:
        raise SetAside("GPU not stated")
    if count % nodes:
        raise SetAside(f"{count} GPUs do not make {nodes} equal nodes")
    each = f"{count}" if nodes == 1 else f"{nodes}x{count // nodes}"
    for spelled in _spellings(name, whole(row, "gpu.memory_gb")):
        try:
            return parse_cluster(f"{each}x{spelled}")
        except PlanError:
            continue
    raise SetAside(f"{each}x{name}: no machine that is known")


def _spellings(name: str, memory: int | None) -> list[str]:
    """Sources write `RTX 3090 (280 W, no NVLink)`, `H100-96GB(HBM2e, 500W)`, `A100-SXM4-80GB`."""
    bare = re.sub(r"\(.*?\)", " ", name).strip()
    plain = re.sub(r"-?(SXM\d?|HBM\de?|NVLink)", "", bare, flags=re.IGNORECASE).replace("NVIDIA", "").strip(" -")
    # Some sources give the memory as the driver counts it, a little below what is marketed.
    sized = [f"{plain}-{size}GB" for size in (memory, memory + 1)] if memory and "GB" not in plain.upper() else []
    return [*sized, name, bare, plain]
