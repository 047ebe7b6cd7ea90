"""The machine of a row, as `--gpus` takes it."""

import re

from benchmarks.accuracy.row import Row, SetAside, needed, text, whole
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster

_MOST_GPUS = 2**17
_GB = 10**9
_APART = 0.1
"""Between what is marketed, what a driver counts, and GB and GiB, at most 7.4 %."""


def cluster_of(row: Row) -> Cluster:
    """Nodes and GPUs. SetAside when the row does not say, or names a GPU that is not known."""
    count = needed(row, "gpu.count", "number of GPUs", _MOST_GPUS)
    nodes = whole(row, "gpu.nodes") or 1
    name = text(row, "gpu.model")
    if not name:
        raise SetAside("GPU not stated")
    if count % nodes:
        raise SetAside(f"{count} GPUs do not make {nodes} equal nodes")
    if re.search(r"\bmig\b", name, re.IGNORECASE):
        raise SetAside(f"{name}: a part of a GPU")
    each = f"{count}" if nodes == 1 else f"{nodes}x{count // nodes}"
    for spelled in _spellings(name, whole(row, "gpu.memory_gb")):
        try:
            found = parse_cluster(f"{each}x{spelled}")
        except PlanError:
            continue
        _check_memory(name, whole(row, "gpu.memory_gb"), found)
        return found
    raise SetAside(f"{each}x{name}: no machine that is known")


def _check_memory(name: str, memory: int | None, cluster: Cluster) -> None:
    """SetAside where the row states another memory than a GPU of its name has."""
    marketed = cluster.gpu.marketed_bytes
    if memory and marketed and abs(memory * _GB - marketed) > _APART * marketed:
        raise SetAside(f"{name} with {memory} GB, not {marketed / _GB:.0f}: no machine that is known")


def _spellings(name: str, memory: int | None) -> list[str]:
    """Sources write `RTX 3090 (280 W, no NVLink)`, `H100-96GB(HBM2e, 500W)`, `A100-SXM4-80GB`."""
    bare = re.sub(r"\(.*?\)", " ", name).strip()
    plain = re.sub(r"-?(SXM\d?|HBM\de?|NVLink)", "", bare, flags=re.IGNORECASE).replace("NVIDIA", "").strip(" -")
    # Some sources give the memory as the driver counts it, a little below what is marketed.
    sized = [f"{plain}-{size}GB" for size in (memory, memory + 1)] if memory and "GB" not in plain.upper() else []
    return [*sized, name, bare, plain]
