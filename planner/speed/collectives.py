"""Seconds of one transfer between devices, or between a device and its host, out of collectives.toml.

Inside a node by measured curves where the device has one, else by the link's rate and published shares of it.
Between nodes the ring formula holds too (busbw of nccl-tests doc/PERFORMANCE.md), bound by the node's ports.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.disk import NVME_RANGE
from gpu_plan.planner.plain.facts import facts
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.between import congestion, ring_seconds, tree_share, tree_wait
from gpu_plan.planner.speed.calibration.rates import MEASURED_HERE, exchange_seconds
from gpu_plan.planner.speed.calibration.record import Calibration
from gpu_plan.planner.speed.model import DISK_KINDS, HOST_KINDS, Collective, CollectiveKind
from gpu_plan.planner.speed.rates import Rate, host_copy_share, worst_basis
from gpu_plan.planner.units import ceil_div, median

_ADDS_UP = ("infiniband-sharp",)
"""Networks whose switches add up an all-reduce."""
_RAIL_ONLY, _EFA = "rail-only", "efa"
_XGMI_PEERS = 7
"""Fully connected: a device reaches each of seven peers over a link of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """How the ranks of a collective lie."""

    ranks: int
    nodes: int
    """Groups of devices that a switch of their own joins, one node each but in a rack."""
    per_node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """One measured table: log bytes against log seconds."""

    ranks: int
    log_bytes: tuple[float, ...]
    log_seconds: tuple[float, ...]

    def seconds(self, num_bytes: float) -> float:
        """Flat below the table, proportional to the bytes above it."""
        at = np.log(max(num_bytes, 1.0))
        beyond = max(0.0, at - self.log_bytes[-1])
        return float(np.exp(np.interp(at, self.log_bytes, self.log_seconds) + beyond))


@functools.cache
def collectives_data() -> dict[str, Any]:
    """collectives.toml as it stands."""
    return facts(Path(__file__).with_name("collectives.toml"))


@functools.cache
def _curves() -> dict[tuple[str, str], tuple[_Curve, ...]]:
    found: dict[tuple[str, str], list[_Curve]] = {}
    for row in collectives_data()["curves"]:
        sizes, micros = zip(*row["bytes_us"], strict=True)
        # Published times jitter; more bytes never take less here.
        seconds = np.maximum.accumulate(np.asarray(micros) * 1e-6)
        curve = _Curve(
            ranks=row["ranks"],
            log_bytes=tuple(np.log(sizes).tolist()),
            log_seconds=tuple(np.log(seconds).tolist()),
        )
        found.setdefault((row["gpu"], row["kind"]), []).append(curve)
    return {key: tuple(sorted(curves, key=lambda curve: curve.ranks)) for key, curves in found.items()}


def wire_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bytes that each rank sends, per byte of the tensor, in a ring of `ranks`."""
    if kind in HOST_KINDS:
        return 1.0
    if ranks <= 1:
        return 0.0
    if kind == "broadcast":
        return 1.0
    share = (ranks - 1) / ranks
    return 2 * share if kind == "all_reduce" else share


def group_of(collective: Collective, cluster: Cluster) -> Group:
    """Where the ranks of a collective lie: nodes filled one after the other, or one rank in each. Nodes that one switch
    joins count as one."""
    ranks = min(collective.ranks or cluster.world_size, cluster.world_size)
    if collective.across_nodes:
        joined = cluster.joined_gpus // cluster.gpus_per_node
        nodes = ceil_div(min(ranks, cluster.nodes), joined)
        return Group(ranks=ranks, nodes=nodes, per_node=ceil_div(ranks, nodes))
    per_node = max(1, min(ranks, cluster.joined_gpus // collective.stride))
    return Group(ranks=ranks, nodes=ceil_div(ranks, per_node), per_node=per_node)


def call_seconds(collective: Collective, cluster: Cluster, here: Calibration | None = None) -> Rate:
    """Seconds of one call, as durations: `slow` is the longest. Zero where nothing moves.

    `here`: what was measured on the machine that is planned for; it holds inside a node.
    """
    if collective.bytes == 0:
        return _nothing()
    if collective.kind in DISK_KINDS:
        return _disk(collective.bytes, cluster)
    if collective.kind in HOST_KINDS:
        return _copied_here(collective.bytes, here) or _host_copy(collective.bytes, cluster)
    group = group_of(collective, cluster)
    if group.ranks == 1:
        return _nothing()
    inside = _inside(collective.kind, collective.bytes, group, cluster, here) if group.per_node > 1 else None
    if group.nodes == 1:
        assert inside is not None  # one node and several ranks
        return inside
    between = _between(collective.kind, collective.bytes, group, cluster)
    return between if inside is None else _longer(inside, between)


def _nothing() -> Rate:
    return Rate(slow=0.0, expected=0.0, fast=0.0, basis="measured", note="")


def _longer(one: Rate, other: Rate) -> Rate:
    """Both run as one pipeline: the slower part decides."""
    deciding = one if one.expected >= other.expected else other
    return Rate(
        slow=max(one.slow, other.slow),
        expected=deciding.expected,
        fast=max(one.fast, other.fast),
        basis=worst_basis((one.basis, other.basis)),
        note=deciding.note,
    )


def _host_copy(num_bytes: int, cluster: Cluster) -> Rate:
    share = host_copy_share()
    link = cluster.host_link_bytes_per_s
    return Rate(
        slow=num_bytes / (link * share.slow),
        expected=num_bytes / (link * share.expected),
        fast=num_bytes / (link * share.fast),
        basis=worst_basis((share.basis, cluster.host_link_basis)),
        note=f"{share.note}, {link / 1e9:.0f} GB/s ({cluster.host_link_basis})",
    )


def _copied_here(num_bytes: int, here: Calibration | None) -> Rate | None:
    if here is None or here.host_copy is None:
        return None
    slow, expected, fast = (num_bytes / rate for rate in here.host_copy)
    return Rate(slow=slow, expected=expected, fast=fast, basis="measured", note=f"host copies: {MEASURED_HERE}")


def _disk(num_bytes: int, cluster: Cluster) -> Rate:
    """All ranks of a node share its drive."""
    slow, expected, fast = (num_bytes * cluster.gpus_per_node / rate for rate in NVME_RANGE)
    return Rate(
        slow=slow,
        expected=expected,
        fast=fast,
        basis="assumed",
        note=f"NVMe: {NVME_RANGE[1] / 1e9:.0f} GB/s for each node",
    )


# -- inside a node -----------------------------------------------------------------------------------------


def _curve_kind(kind: CollectiveKind) -> str:
    """All ranks of an all-to-all send and receive at once, as much as in an all-gather of the same size (at the share
    of its rate that collectives.toml has: exchange)."""
    return "all_gather" if kind in ("broadcast", "all_to_all") else kind


def _nearest(curves: tuple[_Curve, ...], ranks: int) -> _Curve:
    """The smallest table that holds the ranks, or the largest there is."""
    return next((curve for curve in curves if curve.ranks >= ranks), curves[-1])


def _inside(
    kind: CollectiveKind, num_bytes: int, group: Group, cluster: Cluster, here: Calibration | None = None
) -> Rate:
    measured = None if here is None else exchange_seconds(here, kind, group.ranks, num_bytes)
    if measured is not None:
        return measured
    curves = _curves().get((cluster.gpu.id, _curve_kind(kind)))
    factor = wire_factor(kind, group.ranks)
    if curves is None or _link_class(cluster) == "assumed":
        return _by_link(kind, num_bytes * factor, group, cluster)
    curve = _nearest(curves, group.per_node)
    table_kind: CollectiveKind = "all_gather" if kind in ("broadcast", "all_to_all") else kind
    seconds = curve.seconds(num_bytes) * factor / wire_factor(table_kind, curve.ranks)
    if kind == "all_to_all":
        seconds /= collectives_data()["exchange"]["share"]
    reduced = _added_up(kind, group, curve, cluster)
    spread = collectives_data()["spread"]["share"]
    return Rate(
        slow=seconds * (1 + spread),
        expected=seconds / reduced,
        fast=seconds / reduced / (1 + spread),
        basis="measured",
        note=f"collectives: measured on {curve.ranks}x {cluster.gpu.short}",
    )


def _added_up(kind: CollectiveKind, group: Group, curve: _Curve, cluster: Cluster) -> float:
    """Times as fast as told by a table of so few ranks that its switch added nothing up: an all-reduce of more."""
    row = collectives_data()["nvls"]
    few = curve.ranks < row["ranks"] <= group.per_node
    return float(median(row["times"])) if kind == "all_reduce" and few and _adds_up_inside(cluster) else 1.0


def _adds_up_inside(cluster: Cluster) -> bool:
    """Whether the switch inside a node adds up what its devices send (NVLS: NVSwitch of Hopper on)."""
    return (cluster.gpu.compute_capability or (0, 0)) >= (9, 0) and _link_class(cluster) == "switch"


def _link_class(cluster: Cluster) -> str:
    if cluster.intra_node_basis == "assumed":
        return "assumed"
    if not cluster.intra_node_link.startswith("PCIe"):
        return "switch"
    return "pcie" if cluster.peer_access else "staged"


def _link_shares(cluster: Cluster, ranks: int) -> tuple[float, float, float]:
    """Slow, expected and fast share of the link's rate that a collective of so many ranks reaches."""
    link = _link_class(cluster)
    wanted = "pcie" if link == "assumed" else link
    rows = [row for row in collectives_data()["intra"] if row["link"] == wanted]
    if wanted == "staged":
        share = median(row["share"] for row in rows)
        staged = collectives_data()["staged"]
        older = 1.0 if cluster.intra_node_link.startswith("PCIe 3") else staged["older"]
        return share * staged["slots_slow"] * older, share, share / staged["slots"]
    tabled = sorted({row.get("ranks", ranks) for row in rows})
    nearest = next((known for known in tabled if known >= ranks), tabled[-1])
    shares = [row["share"] for row in rows if row.get("ranks", ranks) == nearest]
    every = [row["share"] for row in rows]
    least = min(every) if wanted == "pcie" else min(shares)
    return least, median(shares), max(shares)


def _by_link(kind: CollectiveKind, wire_bytes: float, group: Group, cluster: Cluster) -> Rate:
    slow, share, fast = _link_shares(cluster, group.per_node)
    link = cluster.intra_node_bytes_per_s
    if cluster.intra_node_link.startswith("xGMI"):
        link *= min(group.per_node - 1, _XGMI_PEERS) / _XGMI_PEERS
    latency = _small_call_seconds(_curve_kind(kind), group.per_node)
    staged = ", through RAM: the driver lets these cards not reach each other" if not cluster.peer_access else ""
    return Rate(
        slow=latency + wire_bytes / (link * slow),
        expected=latency + wire_bytes / (link * share),
        fast=latency + wire_bytes / (link * fast),
        basis=worst_basis(("source", cluster.intra_node_basis)),
        note=f"collectives: {share:.0%} of {link / 1e9:.0f} GB/s, {cluster.intra_node_link}{staged}",
    )


@functools.cache
def _small_call_seconds(kind: str, ranks: int) -> float:
    """Median time of the smallest message over all measured devices."""
    return median(
        float(np.exp(_nearest(curves, ranks).log_seconds[0]))
        for (_, curve_kind), curves in _curves().items()
        if curve_kind == kind
    )


# -- between nodes -----------------------------------------------------------------------------------------


def _between(kind: CollectiveKind, num_bytes: int, group: Group, cluster: Cluster) -> Rate:
    data = collectives_data()
    network = None if cluster.gpu.network == "infiniband" else cluster.gpu.network
    forwarded = _forwarded(network, kind, data)
    if network == _RAIL_ONLY or (network in _ADDS_UP and kind != "all_reduce"):
        network = None  # other collectives pass its switches as elsewhere
    shares = [row["share"] for row in data["inter"] if _is_of(row, network)]
    ports = cluster.inter_node_bytes_per_s * group.per_node
    alone, crowded = _links_shares(network, group, cluster)
    wire_bytes = num_bytes * wire_factor(kind, group.ranks)
    if kind == "all_to_all":
        # Nothing is handed on from node to node: what each rank of a node sends to the others leaves it once.
        wire_bytes = num_bytes * group.per_node * (group.nodes - 1) / group.nodes
    left, busy = congestion(group.nodes, data)
    share = median(shares)
    wires = (
        wire_bytes / (ports * alone * min(shares) * busy),
        wire_bytes / (ports * alone * share * left),
        wire_bytes / (ports * min(max(1.0, max(shares)), crowded * max(shares))),
    )
    wires = tuple(wire * times for wire, times in zip(wires, forwarded, strict=True))
    reached = f"{alone * share:.0%} of {ports / 1e9:.0f} GB/s per node ({cluster.inter_node_basis})"
    small = _small_between(data, network)
    crossing = _crossing(network, data)
    trees = _tree_waits(group.nodes, network == _EFA)
    slow, expected, fast = (
        max(least, _fastest(kind, group, wire, tree + wire * share, crossing))
        for wire, tree, share, least in zip(wires, trees, _tree_shares(network, group, cluster), small, strict=True)
    )
    lost = f", {left:.0%} of it over {group.nodes} nodes" if round(left, 2) < 1 else ""
    return Rate(
        slow=slow,
        expected=expected,
        fast=fast,
        basis=worst_basis(("source", "assumed" if cluster.inter_node_basis == "assumed" else "source")),
        note=f"between nodes: {reached}{lost}",
    )


def _is_of(row: Mapping[str, Any], network: str | None) -> bool:
    return network in (row.get("network"), row.get("also")) if network else "network" not in row


def _forwarded(network: str | None, kind: CollectiveKind, data: Mapping[str, Any]) -> tuple[float, float, float]:
    """Times as long as between nodes that all reach each other: slow, expected, fast."""
    if network != _RAIL_ONLY or kind != "all_to_all":
        return 1.0, 1.0, 1.0
    row = data["rail_only"]
    return row["slow"], row["expected"], row["fast"]


def _links_shares(network: str | None, group: Group, cluster: Cluster) -> tuple[float, float]:
    """Shares of its ranks' ports that a communicator gets where NCCL opens one of a node's links for each: with those
    of the node's other devices beside it, and where two on one link are as fast as each alone."""
    links = collectives_data()["links"].get(network)
    if links is None:
        return 1.0, 1.0
    crowded = cluster.gpus_per_node / group.per_node / links
    return min(1.0, crowded), crowded


def _fastest(kind: CollectiveKind, group: Group, wire: float, tree: float, crossing: float) -> float:
    """NCCL chooses: all-reduce by ring or by a tree that takes so long, everything else by ring."""
    ring = ring_seconds(kind, group.ranks, group.nodes, wire, crossing=crossing)
    return min(ring, tree) if kind == "all_reduce" else ring


def _tree_shares(network: str | None, group: Group, cluster: Cluster) -> tuple[float, float, float]:
    """What a tree sends of what a ring does between two nodes: slow, expected, fast. Expected where the switch inside a
    node adds up (NVLSTree) and of networks whose shares are no two nodes' own: of A100 one published table passes the
    wire's rate (p4de, 2026) and one does not (NVIDIA/nccl issue 495, 2021), of RoCE likewise."""
    if network in _ADDS_UP:
        return 1.0, 1.0, 1.0
    halved = tree_share(group.ranks, group.nodes)
    return 1.0, halved if _adds_up_inside(cluster) and network in (None, _EFA) else 1.0, halved


def _crossing(network: str | None, data: Mapping[str, Any]) -> float:
    """How many times as long as InfiniBand's a step over EFA waits: all-reduces of a few bytes over two nodes each."""
    if network != _EFA:
        return 1.0
    efa, others = (
        median(row["us"] for row in data["inter_latency"] if ("also" in row) is its) for its in (True, False)
    )
    return float(efa / others)


@functools.cache
def _tree_waits(nodes: int, elsewhere: bool) -> tuple[float, float, float]:
    wait = tree_wait(nodes, collectives_data(), elsewhere=elsewhere)
    return wait.slow, wait.expected, wait.fast


def _small_between(data: Mapping[str, Any], network: str | None) -> tuple[float, float, float]:
    rows = data["inter_latency"]
    latencies = [row["us"] * 1e-6 for row in [row for row in rows if network and _is_of(row, network)] or rows]
    return max(latencies), median(latencies), min(latencies)
