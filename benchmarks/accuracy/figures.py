"""What a set of scored rows amounts to, group by group."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Line = dict[str, Any]
ALL = "all"
FAULT = "the estimate failed"
"""How the reason begins of a row that a fault of this program set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """A row that is not scored."""

    id: str
    group: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What came of some rows."""

    lines: tuple[Line, ...]
    aside: tuple[Aside, ...]


def spread(values: Iterable[float]) -> dict[str, float | int | None]:
    """Count, median, 95th percentile (nearest rank) and worst of the absolute values; None without any."""
    ordered = sorted(abs(value) for value in values)
    if not ordered:
        return {"n": 0, "median": None, "p95": None, "worst": None}
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    last = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return {"n": len(ordered), "median": median, "p95": last, "worst": ordered[-1]}


def summary(lines: Sequence[Line], aside: Sequence[Aside]) -> dict[str, Line]:
    """Figures of each group and, where there are several, of all; errors are fractions."""
    names = list(dict.fromkeys([*(line["group"] for line in lines), *(row.group for row in aside)]))
    found = {
        name: _group([x for x in lines if x["group"] == name], [x for x in aside if x.group == name]) for name in names
    }
    return {**found, ALL: _group(lines, aside)}


def _group(lines: Sequence[Line], aside: Sequence[Aside]) -> Line:
    beyond = [line for line in lines if line.get("states_suffice") is False]
    found: Line = {
        "peak_allocated": _errors(lines, "peak_allocated"),
        "above_states": _errors(beyond, "above_states"),
        "peak_reserved": _errors(lines, "peak_reserved"),
        "device": _device(lines),
        "false_fits": sum(line.get("verdict") == "fits" for line in lines if line.get("died")),
        "false_no": sum(line.get("verdict") == "no" for line in lines if not line.get("died")),
        "aside": len(aside),
    }
    if any("peak_active_error" in line for line in lines):
        found["peak_active"] = _errors(lines, "peak_active")
    rated = [line for line in lines if "tokens_per_s_error" in line]
    if rated:
        inside = sum(line["tokens_per_s_inside"] for line in rated)
        found["tokens_per_s"] = {**_errors(rated, "tokens_per_s"), "inside": inside}
    if any(line.get("kind") == "speed" for line in lines):
        found["step_time"] = _step_time(lines)
    return found


def _errors(lines: Sequence[Line], name: str) -> dict[str, float | int | None]:
    return spread(line[f"{name}_error"] for line in lines if f"{name}_error" in line)


def _device(lines: Sequence[Line]) -> Line:
    """`median` is of the errors of what is expected, `width` the median of the interval's share of the capacity."""
    device = [line for line in lines if "device_inside" in line]
    widths = spread((line["device_high"] - line["device_low"]) / line["capacity"] for line in device)
    return {
        "n": len(device),
        "inside": sum(line["device_inside"] for line in device),
        "median": spread(line["device_error"] for line in device)["median"],
        "width": widths["median"],
    }


def _step_time(lines: Sequence[Line]) -> Line:
    """`ratio` is the median of predicted over measured step times."""
    timed = [line for line in lines if line.get("kind") == "speed"]
    ratios = sorted(line["ratio"] for line in timed)
    middle = len(ratios) // 2
    ratio = ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
    return {
        **spread(line["ratio"] - 1 for line in timed),
        "inside": sum(line["inside"] for line in timed),
        "ratio": ratio,
    }
