"""Intervals of device memory: how wide, how often right, and how often without what a group's own rows say.

One constant of these intervals comes from rows that they are compared with: the CUDA context of a GPU. For each group
it is found anew from the other groups' rows of that GPU. A row bounds the context by what it measured and the ends of
everything else; taken is the narrowest interval that meets the bounds of each row, or, where single values do, all of
those.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.accuracy.figures import Line, spread
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.memory.overheads import cuda_context

NARROW = 0.04
"""Share of the capacity: the issue of these figures asks for narrower ones in nine of ten."""
Bounds = tuple[int, int]
"""Least and most bytes."""


def device_intervals(lines: Sequence[Line]) -> Mapping[str, Any]:
    """`inside` of `n`; `width` as shares of the capacity, `narrow` below `NARROW`; `wide` those that are not, each with
    the widths of its parts; `left_out` by group."""
    device = [line for line in lines if "device_inside" in line]
    widths = sorted(map(_width, device))
    told = {
        name: _left_out(name, [line for line in device if line["group"] == name], device)
        for name in dict.fromkeys(line["group"] for line in device)
    }
    return {
        "n": len(device),
        "inside": sum(line["device_inside"] for line in device),
        "width": {"median": spread(widths)["median"], "p90": _nearest(widths, 0.9), "worst": spread(widths)["worst"]},
        "narrow": sum(width < NARROW for width in widths),
        "wide": {line["id"]: _widths_of_parts(line) for line in device if _width(line) >= NARROW},
        "left_out": {"inside": sum(found["inside"] for found in told.values()), "groups": told},
    }


def _width(line: Line) -> float:
    share: float = (line["device_high"] - line["device_low"]) / line["capacity"]
    return share


def _widths_of_parts(line: Line) -> dict[str, float]:
    """Shares of the capacity, the widest first; of a run that fills its device they add up to more than its own."""
    widths = {name: (high - low) / line["capacity"] for name, (low, high) in line.get("device_parts", {}).items()}
    return dict(sorted(widths.items(), key=lambda part: -part[1]))


def _left_out(name: str, own: Sequence[Line], device: Sequence[Line]) -> dict[str, int]:
    others = [line for line in device if line["group"] != name]
    inside = sum(_inside(line, context_of(line, others)) for line in own)
    return {"n": len(own), "inside": inside}


def context_of(line: Line, others: Iterable[Line]) -> Bounds | None:
    """The context of a line's GPU by other rows alone; None where none of them is of that GPU."""
    bounds = [bounds_of(other) for other in others if _gpu(other) == _gpu(line) and not _filled(other)]
    if not bounds:
        return None
    low, high = min(most for _, most in bounds), max(least for least, _ in bounds)
    return min(low, high), max(low, high)


def bounds_of(line: Line) -> Bounds:
    """What one row leaves possible for the context."""
    context = cuda_context(_cluster(line))
    least = line["measured_device"] - (line["device_high"] - context.high)
    return least, line["measured_device"] - (line["device_low"] - context.low)


def _inside(line: Line, context: Bounds | None) -> bool:
    """Whether the measured value lies inside with that context in place of the shipped one."""
    if _filled(line):
        return bool(line["device_inside"])
    if context is None:
        return False
    shipped = cuda_context(_cluster(line))
    low = line["device_low"] - shipped.low + context[0]
    return bool(low <= line["measured_device"] <= line["device_high"] - shipped.high + context[1])


def _filled(line: Line) -> bool:
    """Whether the run fills its device: what lies outside the allocator then moves neither end."""
    return bool(line.get("device_filled"))


def _cluster(line: Line) -> Cluster:
    return parse_cluster(line["gpus"])


def _gpu(line: Line) -> str:
    return _cluster(line).gpu.name


def _nearest(ordered: Sequence[float], share: float) -> float | None:
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
