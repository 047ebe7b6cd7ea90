"""Nodes as an engine tells them, and the cluster that they are. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.catalog import find_gpu, load_gpus
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.names import squash


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node."""

    name: str
    gpu: str | None = None
    """As the engine calls its devices; empty where it only counts them, None where there are none."""
    gpus: int = 0
    ram_bytes: int | None = None
    features: tuple[str, ...] = ()


def cluster_from(
    nodes: Sequence[Node],
    where: str,
    *,
    name: str = "",
    count: int | None = None,
    extra_gpus: Mapping[str, object] | None = None,
    known_ram: int | None = None,
) -> Cluster:
    """The cluster that equal `nodes` make; of several kinds those whose devices `name` names.

    `where`: for messages. `count`: so many of the nodes. `known_ram`: bytes, for CPU nodes whose RAM is not told.
    InputError in one line for none, for too few, for several kinds, and for devices that nobody knows.
    """
    chosen = [node for node in nodes if not name or squash(node.gpu or "") == squash(name)]
    kinds = sorted({(node.gpu, node.gpus) for node in chosen if node.gpus}, key=lambda kind: (kind[0] or "", kind[1]))
    if not nodes:
        raise InputError(f"--gpus {where}: no node of it is up")
    if not chosen:
        has = ", ".join(sorted({_words(node) for node in nodes}))
        raise InputError(f"--gpus {where}: no node has {name}; they have {has}")
    if len(kinds) > 1:
        has = ", ".join(
            f"{sum((n.gpu, n.gpus) == kind for n in chosen)} nodes with {kind[1]}x{kind[0]}" for kind in kinds
        )
        one = kinds[0][0]
        raise InputError(f"--gpus {where}: different nodes ({has}): name one kind, such as {where}:{one}")
    same = [node for node in chosen if node.gpus] or chosen
    if count is not None and count > len(same):
        raise InputError(f"--gpus {where}: {count} nodes are asked for, and {len(same)} are up")
    rams = [node.ram_bytes for node in same if node.ram_bytes]
    ram = min(rams) if rams else None
    total = count or len(same)
    if not kinds:
        return Cluster(gpu=load_gpus()["cpu"], nodes=total, gpus_per_node=1, host_ram_bytes=ram or known_ram)
    gpu, each = kinds[0]
    known = _named(gpu or "", same[0].features, where, total, each, extra_gpus)
    return Cluster(gpu=find_gpu(known, extra_gpus), nodes=total, gpus_per_node=each, host_ram_bytes=ram)


def known_name(*texts: str, extra_gpus: Mapping[str, object] | None = None) -> str:
    """The catalogue's name of the first of `texts` that names a GPU; else the first itself, empty for none."""
    for text in texts:
        try:
            if text:
                return find_gpu(text.replace("_", " "), extra_gpus).short
        except InputError:
            continue
    return next(filter(None, texts), "")


def spread(one: Cluster, nodes: int, ram_bytes: int | None = None) -> Cluster:
    """So many machines like this one."""
    ram = min(filter(None, (ram_bytes, one.host_ram_bytes)), default=None)
    return replace(one, nodes=nodes, host_ram_bytes=ram)


def _named(
    gpu: str, features: Sequence[str], where: str, nodes: int, each: int, extra_gpus: Mapping[str, object] | None
) -> str:
    """The catalogue's name of what a site calls so, or has as a feature of the node."""
    found = known_name(gpu, *features, extra_gpus=extra_gpus)
    try:
        return find_gpu(found, extra_gpus).short if found else _missing()
    except InputError:
        pass
    said = f"calls its GPUs {gpu!r}, which is no GPU that is known" if gpu else "does not say which GPUs it has"
    raise InputError(f"--gpus {where}: it {said}: name them, such as --gpus {nodes}x{each}xH100")


def _missing() -> str:
    raise InputError("no name")


def _words(node: Node) -> str:
    return f"{node.gpus}x{node.gpu or 'GPU'}" if node.gpus else "no GPUs"
