"""The table of machines, 80 columns or more."""

from gpu_plan.planner.plan.machines import Machine, MachinesDocument
from gpu_plan.planner.units import format_count, format_dollars, format_gib, format_short
from gpu_plan.reports.clean import ascii_line, one_line

_DASH = "-"
_NAMED = 8
"""Machines that are named of those that do not do."""


def render_machines(document: MachinesDocument, *, top: int, ascii_only: bool) -> str:
    """Ends with a newline; `top` machines are shown."""
    grouped = _grouped(document.machines)
    shown = grouped[:top]
    lines = [f"{document.model}: {format_count(document.parameters)} parameters, {', '.join(document.job)}", ""]
    if document.note is not None:
        lines += [document.note[:1].upper() + document.note[1:], ""]
    elif not shown:
        lines += ["OOM  on every machine that was tried", ""]
    if shown:
        lines += [*_table(shown), ""]
    if len(grouped) > top:
        lines.append(f"{len(grouped) - top} more with --top {len(grouped)}")
    if shown:
        lines.append(_compared(document.machines))
    if document.passed_over and document.machines:
        lines.append(f"beyond the budget or the deadline: {_some(document.passed_over)}")
    if document.too_small:
        lines.append(f"too small: {_some(document.too_small)}")
    sources = {f"{one.price_provider}, {one.price_date}" for one, _ in shown if one.price_provider}
    if sources:
        lines.append(f"prices on demand, for all GPUs of the machine: {'; '.join(sorted(sources))} (sources in --json)")
    clean = ascii_line if ascii_only else one_line
    return "\n".join(_indented(line, clean(line)) for line in lines) + "\n"


def _compared(machines: tuple[Machine, ...]) -> str:
    """By which plan each machine stands where it does."""
    whole = sum(one.all_plans for one in machines)
    if whole == len(machines):
        return "each by the best of all its plans"
    if not whole:
        return "each by the simplest plan that fits, at its best micro batch: --gpus compares all plans of one"
    return f"{whole} of {len(machines)} by the best of all plans, the others by the simplest: none could come first"


def _some(specs: tuple[str, ...]) -> str:
    """The last of them, which are the largest: what is nearest to fitting."""
    if len(specs) <= _NAMED:
        return ", ".join(specs)
    return f"{', '.join(specs[-_NAMED:])} and {len(specs) - _NAMED} smaller (all in --json)"


def _indented(line: str, clean: str) -> str:
    """Cleaned words in their columns: names that the user gave are the only ones that can hold anything else."""
    return line.rstrip() if " ".join(line.split()) == clean.strip() else clean


def _grouped(machines: tuple[Machine, ...]) -> list[tuple[Machine, list[str]]]:
    """Machines with the same figures in one row, the others' names behind the first."""
    rows: dict[tuple[object, ...], tuple[Machine, list[str]]] = {}
    for one in machines:
        key = (one.plan, one.device_used_bytes, one.capacity_bytes, one.gpus, one.usd_per_hour, one.samples_per_second)
        if key in rows:
            rows[key][1].append(one.spec)
        else:
            rows[key] = (one, [])
    return list(rows.values())


def _table(grouped: list[tuple[Machine, list[str]]]) -> list[str]:
    machines = [one for one, _ in grouped]
    jobs = any(one.job is not None for one in machines)
    tokens = any(one.tokens_per_second is not None for one in machines)
    unit = "tokens" if tokens else "samples"
    header = ["machine", "GiB used", f"{unit}/s", "$/hour", f"$/M {unit}"]
    header += ["hours", "$ job"] if jobs else []
    rows = [header, *(_row(one, jobs) for one in machines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = []
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
        if number:
            others = grouped[number - 1][1]
            also = f"; also {', '.join(others)}" if others else ""
            lines.append(f"    {machines[number - 1].plan}{also}")
    return lines


def _row(one: Machine, jobs: bool) -> list[str]:
    rate = one.samples_per_second if one.tokens_per_second is None else one.tokens_per_second
    cells = [
        one.spec,
        f"{format_gib(one.device_used_bytes)} of {format_gib(one.capacity_bytes)}",
        f"{rate:,.0f}",
        _money(one.usd_per_hour),
        _money(one.usd_per_million_tokens),
    ]
    if jobs:
        cells += [_DASH, _DASH] if one.job is None else [_hours(one.job.hours), _money(one.job.usd)]
    return cells


def _hours(value: float) -> str:
    return f"{value:,.1f}" if 1 <= value < 1000 else format_short(value)


def _money(value: float | None) -> str:
    if value is None:
        return _DASH
    return format_dollars(value).removeprefix("$")
