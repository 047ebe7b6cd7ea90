"""Seconds of one collective between nodes: what NCCL's algorithms wait for beside what their wire carries.

A ring passes every rank, so its latency grows with the ranks; a tree grows with the logarithm of the nodes. NCCL takes
the faster of its algorithms and protocols, by a model of its own (NVIDIA/nccl src/graph/tuning.cc: ncclTopoTuneModel),
whose steps and latencies are used here; the tree's levels are those of published all-reduce tables, which its
constants understate.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.model import CollectiveKind
from gpu_plan.planner.units import median


@dataclass(frozen=True, slots=True, kw_only=True)
class _Protocol:
    """How NCCL sends: seconds of a step inside a node and between nodes, and the share of the wire that is payload."""

    inside: float
    between: float
    payload: float


_PROTOCOLS = (
    _Protocol(inside=1.0e-6, between=2.7e-6, payload=0.25),
    _Protocol(inside=1.9e-6, between=4.0e-6, payload=0.92),
    _Protocol(inside=4.5e-6, between=14.0e-6, payload=1.0),
)
"""LL, LL128, Simple (tuning.cc: hwLat of the ring, NVLink and network; getNetOverhead 1 us, 2 us on AMD hosts, three
times that under Simple, is a step's least)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Seconds that pass beside the wire: least, expected and most."""

    fast: float
    expected: float
    slow: float


def ring_seconds(kind: CollectiveKind, ranks: int, nodes: int, wire_seconds: float, *, crossing: float = 1.0) -> float:
    """Seconds of a ring that carries its payload in `wire_seconds` when nothing is lost to the protocol. `crossing`:
    how many times as long as InfiniBand's a step between nodes waits."""
    rounds = 2 if kind == "all_reduce" else 1
    # tuning.cc counts one step more between nodes where the ring is passed twice.
    crossings = 2 * nodes if kind == "all_reduce" else nodes - 1
    steps = max(rounds * (ranks - 1), crossings)
    return min(
        (steps - crossings) * protocol.inside
        + crossings * protocol.between * crossing
        + wire_seconds / protocol.payload
        for protocol in _PROTOCOLS
    )


def tree_wait(nodes: int, data: Mapping[str, Any], *, elsewhere: bool = False) -> Wait:
    """Seconds of a large all-reduce that no wire explains: a line through published tables over log2 of the nodes.

    `elsewhere`: over EFA, whose tables are as many times that as two of them say.
    """
    start, level = _tree_line(tuple((row["nodes"], row["us"]) for row in data["tree"]))
    expected = (start + level * math.log2(nodes)) * 1e-6
    others = [row["us"] / (start + level * math.log2(row["nodes"])) for row in data["tree_elsewhere"]]
    if elsewhere:
        return Wait(fast=expected * min(others), expected=expected * median(others), slow=expected * max(others))
    return Wait(fast=expected / 2, expected=expected, slow=expected * max(others))


@functools.cache
def _tree_line(points: tuple[tuple[int, float], ...]) -> tuple[float, float]:
    """Least squares: microseconds at one node, and of every doubling."""
    level, start = np.polyfit([math.log2(nodes) for nodes, _ in points], [micros for _, micros in points], 1)
    return float(start), float(level)


def tree_share(ranks: int, nodes: int) -> float:
    """Of what a ring sends between nodes, what a tree sends. Of two nodes each is the root of one half and the leaf of
    the other (NVIDIA/nccl issue 209, sjeaugey, 2019-06-04): the whole passes once each way, not 2 (n - 1) / n times.
    Of more nodes most have two below them."""
    return ranks / (2 * (ranks - 1)) if nodes == 2 else 1.0


def congestion(nodes: int, data: Mapping[str, Any]) -> tuple[float, float]:
    """Share of the wire's rate left at so many nodes: expected, and where the fabric is busy.

    Expected: what published tables of one cluster lose for every doubling of its nodes.
    """
    rows = data["scale"]
    lost = median(1 - (row["far"] / row["near"]) ** (1 / math.log2(row["nodes"] / row["from"])) for row in rows)
    expected = (1 - lost) ** max(0.0, math.log2(nodes / min(row["from"] for row in rows)))
    return expected, expected * data["busy"]["share"]
