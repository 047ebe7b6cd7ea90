"""The page: figures by group, the rows with the largest differences, and what was set aside."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.accuracy.figures import Aside, Line, summary
from benchmarks.accuracy.left_out import NARROW, device_intervals
from gpu_plan.planner.units import GIB

_HEAD = """# Estimates against published measurements

Written by `python -m benchmarks.accuracy`; no GPU takes part. Errors are estimate / measured − 1; median, 95th
percentile (nearest rank) and worst are of absolute values. *Above states*: what is left of a peak once k·P/W is taken
off, in rows that k·P/W alone misses by more than 3 %. *Device*: nvidia-smi's memory in use against the interval that
`plan` prints, its width as a share of the capacity (median). *False fits*: runs that died and are called `fits`;
*false no*: runs that lived and are called `no`. *Aside*: rows not scored, for the reasons at the end. Rows are judged
by rule from their own fields; *ran by* is the stack that they name; what versions of their software did otherwise is
declared in `benchmarks/accuracy`, from source. Nothing is fitted.
"""
_TITLES = {
    "memory": "Training: memory",
    "inference": "Inference: peak allocated of the whole generation",
    "speed": "Training: step times",
    "kernels": "Single kernels: peak allocated",
}
_GROUP = ("group", "peak allocated: rows, median / p95 / worst", "above states", "peak reserved",
          "device: inside, median, width", "false fits", "false no", "aside")  # fmt: skip
_TIMES = ("group", "step time: rows, median / p95 / worst", "inside", "predicted / measured", "aside")
_SHOWN = 40


def page(lines: Sequence[Line], aside: Sequence[Aside]) -> str:
    """Markdown."""
    parts = [_HEAD]
    for kind, title in _TITLES.items():
        own = [line for line in lines if line["kind"] == kind]
        away = [row for row in aside if row.kind == kind]
        if own or away:
            intervals = _intervals(own) if kind == "memory" else ""
            parts += [f"## {title}\n", _groups(kind, summary(own, away)), intervals, _rows(kind, own), _reasons(away)]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _intervals(lines: Sequence[Line]) -> str:
    """How wide the intervals of device memory are, and how often right."""
    found = device_intervals(lines)
    if not found["n"]:
        return ""
    width, left_out = found["width"], found["left_out"]
    groups = ", ".join(f"{name}: {own['inside']} of {own['n']}" for name, own in left_out["groups"].items())
    wide = "; ".join(f"{name} ({_parts(parts)})" for name, parts in found["wide"].items())
    return (
        f"Device memory: {found['inside']} of {found['n']} inside; width, of the capacity: median"
        f" {_share(width['median'])}, nine of ten at most {_share(width['p90'])}, worst {_share(width['worst'])};"
        f" {found['narrow']} below {_share(NARROW)}. With the CUDA context taken from other groups' rows alone"
        f" {left_out['inside']} inside ({groups}). Not below, with the widths of their parts: {wide or 'none'}.\n"
    )


def _parts(widths: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_share(width)}" for name, width in widths.items() if width)


def _groups(kind: str, groups: Mapping[str, Line]) -> str:
    if kind == "speed":
        return _table(_TIMES, [_time_cells(name, group) for name, group in groups.items()])
    if kind == "inference":
        columns = (*_GROUP[:-3], "tokens/s: rows, median / p95 / worst, inside", _GROUP[-1])
        return _table(columns, [_generation_cells(name, group) for name, group in groups.items()])
    return _table(_GROUP, [_group_cells(name, group) for name, group in groups.items()])


def _generation_cells(name: str, group: Line) -> list[str]:
    *shown, _, _, aside = _group_cells(name, group)
    rated = group.get("tokens_per_s")
    return [*shown, f"{_spread(rated)}, {rated['inside']}" if rated else "-", aside]


def _group_cells(name: str, group: Line) -> list[str]:
    spreads = [_spread(group[key]) for key in ("peak_allocated", "above_states", "peak_reserved")]
    device = group["device"]
    told = "-"
    if device["n"]:
        told = f"{device['inside']} of {device['n']}, {_share(device['median'])}, {_share(device['width'])}"
    return [name, *spreads, told, *(str(group[key]) for key in ("false_fits", "false_no", "aside"))]


def _time_cells(name: str, group: Line) -> list[str]:
    time = group.get("step_time")
    if time is None:
        return [name, "-", "-", "-", str(group["aside"])]
    return [name, _spread(time), f"{time['inside']} of {time['n']}", f"{time['ratio']:.2f}", str(group["aside"])]


def _spread(found: Mapping[str, Any]) -> str:
    if not found["n"]:
        return "-"
    return f"{found['n']}: " + " / ".join(f"{100 * found[key]:.3f}" for key in ("median", "p95", "worst")) + " %"


def _share(value: float) -> str:
    return f"{100 * value:.2f} %"


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*head, *(f"| {' | '.join(cells)} |" for cells in lines)]) + "\n"


_COLUMNS = {
    "memory": ("row", "ran by", "model", "GPUs", "batch × length", "kernels, loss", "peak allocated GiB",
               "reserved GiB", "device GiB", "verdict"),
    "inference": ("row", "ran by", "model", "weights", "prompt", "software", "peak allocated GiB", "tokens/s"),
    "speed": ("row", "ran by", "model", "GPUs", "strategy", "batch × length", "seconds", "interval"),
    "kernels": ("row", "ran by", "kernel", "provider", "mode", "size", "peak allocated GiB"),
}  # fmt: skip


def _rows(kind: str, lines: Sequence[Line]) -> str:
    """The largest differences first."""
    if not lines:
        return ""
    worst = sorted(lines, key=_worst, reverse=True)[:_SHOWN]
    cells = {"memory": _memory, "inference": _inference, "speed": _speed, "kernels": _kernel}[kind]
    left = f" (the other {len(lines) - _SHOWN} differ less)" if len(lines) > _SHOWN else ""
    return f"Largest differences first{left}:\n\n" + _table(_COLUMNS[kind], [cells(line) for line in worst])


def _worst(line: Line) -> tuple[bool, float]:
    outside = line.get("device_inside") is False or bool(line.get("died") and line["verdict"] == "fits")
    errors = [abs(line[name]) for name in line if name in _JUDGED]
    return outside, max([*errors, abs(line.get("ratio", 1.0) - 1)])


_JUDGED = ("peak_allocated_error", "peak_reserved_error", "device_error", "peak_active_error")


def _memory(line: Line) -> list[str]:
    device = f"{_gib(line['device_low'])} to {_gib(line['device_high'])}"
    if "measured_device" in line:
        device += f", measured {_gib(line['measured_device'])}{'' if line['device_inside'] else ' (outside)'}"
    verdict = line["verdict"] + (", died" if line["died"] else "")
    return [
        line["id"], line["stack"], line["model"].rpartition("/")[2], line["gpus"], _batch(line), line["kernels"],
        _against(line, "peak_allocated"), _against(line, "peak_reserved"), device, verdict,
    ]  # fmt: skip


def _inference(line: Line) -> list[str]:
    weights = line["quantization"] or "bf16"
    model = line["model"].rpartition("/")[2]
    known = [line["id"], line["stack"], model, weights, str(line["prompt"]), line["software"]]
    rate = "-"
    if "tokens_per_s" in line:
        error = f"{100 * line['tokens_per_s_error']:+.1f} %{'' if line['tokens_per_s_inside'] else ', outside'}"
        rate = f"{line['tokens_per_s']:.1f}, measured {line['measured_tokens_per_s']:.1f} ({error})"
    return [*known, _against(line, "peak_allocated"), rate]


def _speed(line: Line) -> list[str]:
    seconds = f"{line['predicted']:.3g}, measured {line['measured']:.3g} ({line['ratio']:.2f})"
    interval = f"{line['low']:.3g} to {line['high']:.3g}{'' if line['inside'] else ' (outside)'}"
    return [
        line["id"], line["stack"], line["model"], line["gpus"], line["strategy"], _batch(line), seconds, interval,
    ]  # fmt: skip


def _kernel(line: Line) -> list[str]:
    known = [line["id"], line["stack"], *(line[name] for name in ("kernel", "provider", "mode", "size"))]
    return [*known, _against(line, "peak_allocated")]


def _batch(line: Line) -> str:
    return f"{line['micro_batch']} × {line['seq_len']}"


def _against(line: Line, name: str) -> str:
    told = _gib(line[name])
    if f"measured_{name}" not in line:
        return told
    return f"{told}, measured {_gib(line[f'measured_{name}'])} ({100 * line[f'{name}_error']:+.3f} %)"


def _gib(size: int) -> str:
    return f"{size / GIB:.2f}"


def _reasons(aside: Sequence[Aside]) -> str:
    if not aside:
        return ""
    counted = Counter((row.group, row.reason) for row in aside)
    return "Set aside:\n\n" + "".join(
        f"- {count} × {group}: {reason}\n" for (group, reason), count in sorted(counted.items())
    )
