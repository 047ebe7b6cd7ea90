"""The accuracy table: figures by group, and the page."""

import math
from collections.abc import Iterable
from typing import Any

from gpu_plan.planner.units import GIB

Row = dict[str, Any]

_HEAD = """# Estimates against published measurements

Written by `python -m benchmarks.accuracy`; no GPU takes part. Errors are estimate / measured − 1, figures of their
absolute values. *Beyond states*: rows whose peak k·P/W alone misses by more than 3 %; the others are counted apart and
prove little. *Above states* is the error of what is left of those peaks once the states are taken off. *Peak active*
counts what is freed and waits for another stream as well. *Device* is nvidia-smi's memory in use, sampled each second,
against the interval that `plan` prints. *False fits*: runs that died and are called `fits`; *false no*: runs that lived
and are called `no`.
"""


def summary(lived: list[Row], died: list[Row]) -> list[Row]:
    """One line per group and one for all."""
    groups = list(dict.fromkeys(line["group"] for line in (*lived, *died)))
    lines = [_group(name, _of(lived, name), _of(died, name)) for name in groups]
    return [*lines, _group("all", lived, died)]


def _of(lines: list[Row], group: str) -> list[Row]:
    return [line for line in lines if line["group"] == group]


def _group(name: str, lived: list[Row], died: list[Row]) -> Row:
    beyond = [line for line in lived if line.get("states_suffice") is False]
    device = [line for line in lived if "device_inside" in line]
    return {
        "group": name,
        "lived": len(lived),
        "died": len(died),
        "states_suffice": sum(bool(line.get("states_suffice")) for line in lived),
        "peak_allocated": spread(line["peak_allocated_error"] for line in lived if "peak_allocated_error" in line),
        "peak_allocated_beyond_states": spread(line["peak_allocated_error"] for line in beyond),
        "above_states": spread(line["above_states_error"] for line in beyond),
        "peak_active": spread(line["peak_active_error"] for line in lived if "peak_active_error" in line),
        "peak_reserved": spread(line["peak_reserved_error"] for line in lived if "peak_reserved_error" in line),
        "device": spread(line["device_error"] for line in device),
        "device_inside": sum(line["device_inside"] for line in device),
        "device_width": spread((line["device_high"] - line["device_low"]) / line["capacity"] for line in device),
        "false_fits": sum(line["verdict"] == "fits" for line in died),
        "false_no": sum(line["verdict"] == "no" for line in lived),
        "tight_lived": sum(line["verdict"] == "tight" for line in lived),
        "tight_died": sum(line["verdict"] == "tight" for line in died),
    }


def spread(values: Iterable[float]) -> Row | None:
    """Count, median, 95th percentile (nearest rank) and worst of the absolute values; None without any."""
    ordered = sorted(abs(value) for value in values)
    if not ordered:
        return None
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {
        "rows": len(ordered),
        "median": median,
        "p95": ordered[math.ceil(0.95 * len(ordered)) - 1],
        "worst": ordered[-1],
    }


def markdown(found: Row) -> str:
    """The page: by group, rows with the largest differences first, and what was set aside."""
    parts = [_HEAD, "## By group\n", _table(_GROUP, [_group_cells(line) for line in found["groups"]])]
    lived = sorted(found["lived"], key=lambda line: -abs(line.get("device_error", 0.0)))
    parts += ["## Runs that lived, largest device error first\n", _table(_LIVED, [_lived_cells(x) for x in lived])]
    parts += ["## Runs that died\n", _table(_DIED, [_died_cells(line) for line in found["died"]])]
    parts += ["## Set aside\n", "".join(f"- {count} × {why}\n" for why, count in sorted(found["set_aside"].items()))]
    return "\n".join(parts).rstrip() + "\n"


_GROUP = ("group", "lived", "died", "states suffice", "peak allocated: rows, median / p95 / worst", "beyond states",
          "above states", "peak active", "peak reserved", "device", "inside", "width of capacity", "false fits",
          "false no", "tight: lived, died")  # fmt: skip
_LIVED = ("row", "group", "model", "GPUs", "micro batch", "kernels, loss", "peak allocated", "error", "above states",
          "reserved", "measured reserved", "error", "device interval", "measured device", "error", "inside", "retries",
          "verdict")  # fmt: skip
_DIED = ("row", "group", "model", "GPUs", "micro batch", "kernels, loss", "peak allocated", "reserved", "capacity",
         "verdict")  # fmt: skip


def _table(columns: tuple[str, ...], lines: list[list[str]]) -> str:
    head = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*head, *(f"| {' | '.join(cells)} |" for cells in lines)]) + "\n"


def _group_cells(line: Row) -> list[str]:
    spreads = (
        "peak_allocated",
        "peak_allocated_beyond_states",
        "above_states",
        "peak_active",
        "peak_reserved",
        "device",
    )
    return [
        line["group"],
        str(line["lived"]),
        str(line["died"]),
        str(line["states_suffice"]),
        *(_spread(line[key]) for key in spreads),
        f"{line['device_inside']} of {line['device']['rows'] if line['device'] else 0}",
        _spread(line["device_width"]),
        str(line["false_fits"]),
        str(line["false_no"]),
        f"{line['tight_lived']}, {line['tight_died']}",
    ]


def _spread(line: Row | None) -> str:
    if line is None:
        return "-"
    return f"{line['rows']}: " + " / ".join(f"{100 * line[key]:.3f}" for key in ("median", "p95", "worst")) + " %"


def _lived_cells(line: Row) -> list[str]:
    return [
        *_described(line),
        _gib(line["peak_allocated"]),
        _percent(line.get("peak_allocated_error")),
        _percent(line.get("above_states_error")),
        _gib(line["peak_reserved"]),
        _gib(line.get("measured_peak_reserved")),
        _percent(line.get("peak_reserved_error")),
        f"{_gib(line['device_low'])} to {_gib(line['device_high'])}",
        _gib(line.get("measured_device")),
        _percent(line.get("device_error")),
        {True: "yes", False: "no", None: "-"}[line.get("device_inside")],
        str(line["retries"]),
        line["verdict"],
    ]


def _died_cells(line: Row) -> list[str]:
    figures = (line["peak_allocated"], line["peak_reserved"], line["capacity"])
    return [*_described(line), *map(_gib, figures), line["verdict"]]


def _described(line: Row) -> list[str]:
    return [
        line["id"],
        line["group"],
        line["model"].rpartition("/")[2],
        line["gpus"],
        str(line["micro_batch"]),
        line["kernels"],
    ]


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / GIB:.2f}"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:+.3f} %"
