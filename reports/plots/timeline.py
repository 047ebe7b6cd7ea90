"""The timeline of a step as a picture, drawn by matplotlib. Imported only where one is drawn."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gpu_plan.planner.plan.timeline import Timeline
from gpu_plan.planner.units import GIB, MIB, format_bytes
from gpu_plan.reports.clean import one_line
from gpu_plan.reports.plots.style import (
    ALARM,
    BAND,
    COLOURS,
    EDGE,
    GRID,
    INK,
    MUTED,
    PAPER,
    as_file,
    shortened,
    style,
)

_COLUMNS = 1500
"""Most points across: of those that share one, the highest is drawn."""
_SHADES = (PAPER, BAND)
_NARROW = 0.07
"""Share of the width below which a phase's name would run into its neighbour's; and inches, in a small picture."""
_NAME_INCHES = 0.62
_LONGEST = 88
"""Characters of a title."""
_CAPACITY_IN_VIEW = 2.0
"""The capacity is drawn where it is no higher than this many times what is reserved; else it is told in words."""


def as_picture(timeline: Timeline, form: str) -> bytes:
    """`png`, `svg` or `pdf`: categories stacked over the step's phases, and what stands at the peak as bars."""
    with style():
        return as_file(draw(timeline), form)


def step_panel(timeline: Timeline, size: tuple[float, float], columns: int) -> Figure:
    """The step alone, for a page: `size` in inches, of at most `columns` points across."""
    with style():
        figure = Figure(figsize=size)
        axes = figure.subplots()
        figure.subplots_adjust(
            left=0.6 / size[0], right=1 - 0.1 / size[0], top=1 - 0.42 / size[1], bottom=0.62 / size[1]
        )
        if timeline.moments:
            _draw_step(axes, timeline, timeline.levels(), _shown(timeline, columns))
            axes.tick_params(labelsize=8.5)
            axes.set_xlabel("allocations and frees, in order" if size[0] > 6 else "events", loc="left", fontsize=8.5)
            legend = axes.get_legend()
            if legend is not None:
                legend.set_bbox_to_anchor((1.0, -0.28 / (size[1] - 1.04)))
        else:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "nothing is allocated", ha="center")
        return figure


def draw(timeline: Timeline) -> Figure:
    """The figure with its two panels: `step` and `peak`."""
    figure = Figure(figsize=(13, 6.2))
    step, peak = figure.subplots(1, 2, width_ratios=(3.1, 1))
    figure.subplots_adjust(left=0.065, right=0.975, top=0.83, bottom=0.105, wspace=0.42)
    step.set_label("step")
    peak.set_label("peak")
    figure.text(0.065, 0.945, shortened(one_line(timeline.title), _LONGEST), fontsize=14, fontweight="bold")
    figure.text(0.065, 0.905, told(timeline), color=MUTED)
    if timeline.moments:
        levels, shown = timeline.levels(), _shown(timeline)
        _draw_step(step, timeline, levels, shown)
        _draw_peak(peak, timeline, levels)
    else:
        step.set_axis_off()
        peak.set_axis_off()
        step.text(0.5, 0.5, "nothing is allocated", ha="center")
    return figure


def told(timeline: Timeline) -> str:
    """The line under the title."""
    if not timeline.moments:
        return f"capacity {format_bytes(timeline.capacity)}"
    top = timeline.moments[timeline.peak]
    reserved = max(moment.reserved for moment in timeline.moments)
    return (
        f"peak allocated {format_bytes(top.allocated)} in {one_line(top.phase)}  ·  "
        f"peak reserved {format_bytes(reserved)}  ·  capacity {format_bytes(timeline.capacity)}  ·  "
        f"iteration {timeline.iteration}, {len(timeline.moments):,} events"
    )


def _shown(timeline: Timeline, columns: int = _COLUMNS) -> list[int]:
    """Events that are drawn, the peak among them."""
    count = len(timeline.moments)
    width = max(1, -(-count // columns))
    return [
        max(
            range(start, min(start + width, count)),
            key=lambda at: (at == timeline.peak, timeline.moments[at].allocated),
        )
        for start in range(0, count, width)
    ]


def _draw_step(axes: Any, timeline: Timeline, levels: Sequence[tuple[int, ...]], shown: Sequence[int]) -> None:
    """Stacked categories, the reserved and the capacity's line, the peak's mark."""
    unit, unit_name = _unit(timeline)
    axes.set_ylabel(f"{unit_name} on the worst rank")
    # Each level holds up to the next event, the last one for a step of its own.
    edges, drawn = [*shown, len(timeline.moments)], [*shown, shown[-1]]
    rows = [[levels[at][column] / unit for at in drawn] for column in range(len(timeline.start))]
    used = [(name, row) for name, row in zip(timeline.start, rows, strict=True) if any(row)]
    colours = [COLOURS.get(name, "#888888") for name, _ in used]
    axes.stackplot(edges, [row for _, row in used], colors=colours, step="post", linewidth=0, zorder=2)
    reserved = [timeline.moments[at].reserved / unit for at in drawn]
    (line,) = axes.plot(edges, reserved, color=INK, linewidth=1.1, linestyle=(0, (4, 2)), drawstyle="steps-post")
    line.set(label="reserved", zorder=3)
    highest = max(*reserved, max(sum(levels[at]) for at in shown) / unit)
    top = highest * 1.12
    capacity = timeline.capacity / unit
    if capacity <= _CAPACITY_IN_VIEW * highest:
        axes.axhline(capacity, color=ALARM, linewidth=1.4, label="capacity", zorder=4)
        top = max(top, capacity * 1.08)
    axes.set_ylim(0, top)
    axes.set_xlim(0, len(timeline.moments))
    peak = timeline.moments[timeline.peak].allocated / unit
    (mark,) = axes.plot([timeline.peak], [peak], "o", markersize=7, color=PAPER, markeredgecolor=INK)
    mark.set(label="peak", zorder=6, clip_on=False)
    axes.set_xlabel("allocations and frees, in order", loc="left")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.grid(axis="y", color=GRID, linewidth=0.6, zorder=1)
    axes.set_axisbelow(True)
    _draw_phases(axes, timeline)
    if timeline.dies:
        axes.annotate(
            "runs out of memory", (len(timeline.moments) - 1, peak), (-12, 8), textcoords="offset points", ha="right",
            fontweight="bold", color=ALARM, zorder=6, bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 2},
        )  # fmt: skip
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, -0.045), ncols=3, frameon=False, fontsize=9, borderaxespad=0.4)


def _unit(timeline: Timeline) -> tuple[int, str]:
    """Bytes of the unit in which the step is drawn, and its name."""
    return (GIB, "GiB") if max(moment.reserved for moment in timeline.moments) >= GIB else (MIB, "MiB")


def _spans(timeline: Timeline) -> list[tuple[str, int, int]]:
    """Phase, first event and the event behind its last."""
    spans: list[tuple[str, int, int]] = []
    for index, moment in enumerate(timeline.moments):
        if spans and spans[-1][0] == moment.phase:
            spans[-1] = (moment.phase, spans[-1][1], index + 1)
        else:
            spans.append((moment.phase, index, index + 1))
    return spans


def _draw_phases(axes: Any, timeline: Timeline) -> None:
    """Shades each phase and names it above; names of narrow ones stand on a second line."""
    count = len(timeline.moments)
    least = max(_NARROW, _NAME_INCHES / (axes.get_position().width * axes.figure.get_figwidth()))
    narrow = raised = False
    for number, (phase, first, behind) in enumerate(_spans(timeline)):
        axes.axvspan(first, behind, color=_SHADES[number % 2], linewidth=0, zorder=0)
        if first:
            axes.axvline(first, color=EDGE, linewidth=0.8, zorder=2.5)
        crowded, narrow = narrow, behind - first < least * count
        raised = narrow and crowded and not raised
        middle = (first + behind) / 2
        place = "right" if narrow and middle > 0.9 * count else "center"
        place = "left" if narrow and middle < 0.1 * count else place
        height = 1.055 if raised else 1.012
        axes.text(
            behind if place == "right" else first if place == "left" else middle,
            height,
            one_line(phase),
            transform=axes.get_xaxis_transform(),
            ha=place,
            color=MUTED,
            fontsize=9,
        )


def _share(part: float) -> str:
    return f"{part:.0%}" if part >= 0.005 else "<1%"


def _draw_peak(axes: Any, timeline: Timeline, levels: Sequence[tuple[int, ...]]) -> None:
    """One bar for each category of the step, largest on top, with its size and share at the peak."""
    ever = [max(column) for column in zip(*levels, strict=True)]
    rows = zip(timeline.start, levels[timeline.peak], ever, strict=True)
    sizes = sorted(((name, size) for name, size, most in rows if most), key=lambda row: row[1])
    whole = sum(size for _, size in sizes)
    labels = [name.replace("_", " ").replace("kv", "KV") for name, _ in sizes]
    colours = [COLOURS.get(name, "#888888") for name, _ in sizes]
    bars = axes.barh(labels, [size / GIB for _, size in sizes], color=colours, height=0.7)
    words = [f" {format_bytes(size)}, {_share(size / whole)}" if size else " none" for _, size in sizes]
    # The bars are the colours' legend as well: what has next to no bar keeps a stub of its own.
    axes.scatter([0] * len(sizes), range(len(sizes)), marker="s", s=30, color=colours, clip_on=False, zorder=3)
    axes.bar_label(bars, words, fontsize=9, padding=5)
    # Room for the words behind the longest bar.
    axes.set_xlim(0, max(size for _, size in sizes) / GIB * 1.75)
    axes.set_ylim(len(sizes) - 1 - 8.5, len(sizes) - 0.5)
    axes.set_title("at the peak", loc="left", fontsize=10, color=MUTED)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(axis="x", bottom=False, labelbottom=False)
    axes.tick_params(axis="y", left=False, labelsize=10, labelcolor=INK)
