"""Plots of a sweep: a heat map of two options, and curves along the first."""

import re
from collections.abc import Sequence
from typing import Any

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from gpu_plan.planner.sweep.document import SweepAxis, SweepDocument, SweepPoint
from gpu_plan.planner.units import GIB
from gpu_plan.reports.clean import one_line
from gpu_plan.reports.plan import words
from gpu_plan.reports.plots.style import ALARM, EDGE, GRID, INK, MUTED, TITLE_INCHES, add_title, shortened, style
from gpu_plan.reports.sweep.words import VERDICTS, fits, grids, share_used

_LINES = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#9c755f", "#edc948", "#e15759")
_HEAT = LinearSegmentedColormap.from_list("used", ["#dcebdd", "#9fcfa4", "#e9d37b", "#e8a05a"])
_LOST, _REFUSED = "#e39a92", "#d5d8dc"
_ROW = 0.64
"""Inches of a heat map's row."""
_LEVEL = 8
"""Characters up to which labels of an axis stand level."""
_DARK = "#1b1b1b"
"""Words on a cell, whatever the theme: cells are light."""
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kK]?)")
_KIND = re.compile(r"x([A-Za-z][^x]*)$")
_GPUS = re.compile(r"(?:(\d+)x)?(\d+)x[A-Za-z]")


def heatmap(document: SweepDocument, width: float | None = None, *, titled: bool = True) -> Figure:
    """Every point as a cell: its share of the capacity, its verdict and how fast it is. `width` in inches."""
    maps = grids(document)
    rows = sum(len(grid) for _, grid in maps)
    across = len(maps[0][1][0])
    with style():
        wide = width or max(7.0, min(16.0, 1.6 + 1.15 * across))
        head = TITLE_INCHES if titled else 0.0
        height = head + 0.52 * len(maps) + _ROW * rows
        figure = Figure(figsize=(wide, height))
        if titled:
            add_title(figure, _subject(document), "share of the capacity in use on the worst rank, and speed")
        top = height - head
        for caption, grid in maps:
            bottom = top - 0.5 - _ROW * len(grid)
            axes = figure.add_axes((1.35 / wide, bottom / height, 1 - 1.4 / wide, _ROW * len(grid) / height))
            _draw_grid(axes, document, grid, caption, wide)
            top = bottom - 0.02
        return figure


def curves(document: SweepDocument, width: float = 9.6, *, titled: bool = True, scaling: bool = False) -> Figure:
    """Memory, and speed beside it, along the first option; a line for each value of the second.

    `scaling` adds to the speed what the first point would give if it grew with the number of GPUs.
    """
    narrow = width < 6
    entries = _lines_of(document)
    columns = max(1, int(width * 10 / (max(len(label) for _, label in entries) + 6)))
    rows = -(-(len(entries) + scaling) // columns) if len(entries) > 1 or scaling else 0
    with style():
        head = TITLE_INCHES if titled else 0.0
        foot = 0.72 + 0.2 * rows + (0.25 if max(map(len, _ticks(document.axes[0])[0])) > _LEVEL else 0)
        height = head + (5.9 if narrow else 3.1) + foot
        figure = Figure(figsize=(width, height))
        if titled:
            add_title(figure, _subject(document), "best plan of every point; hollow: does not fit")
        memory, speed = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
        figure.subplots_adjust(
            left=0.75 / width, right=1 - 0.15 / width, top=1 - (head + 0.1) / height, bottom=foot / height, hspace=0.35,
            wspace=0.26,
        )  # fmt: skip
        _draw_curves(memory, document, _used)
        _draw_capacity(memory, document)
        memory.set_ylabel("GiB used on the worst rank", fontsize=9, color=MUTED)
        tokens = all(point.sequence for point in document.points)
        _draw_curves(speed, document, _rate if tokens else _samples)
        speed.set_ylabel(f"{'tokens' if tokens else 'samples'} per second, all GPUs", fontsize=9, color=MUTED)
        if scaling:
            _draw_ideal(speed, document, _rate if tokens else _samples)
            speed.set_yscale("log", base=2)
            speed.autoscale(axis="y")
            speed.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        if rows:
            handles, names = memory.get_legend_handles_labels()
            ideal, ideal_names = speed.get_legend_handles_labels()
            extra = [(one, name) for one, name in zip(ideal, ideal_names, strict=True) if name not in names]
            figure.legend(
                [*handles, *(one for one, _ in extra)], [*names, *(name for _, name in extra)], loc="lower center",
                ncols=columns, frameon=False, fontsize=8.5, borderaxespad=0.1,
                title=", ".join(axis.name for axis in document.axes[1:]) or None, title_fontsize=8.5,
            )  # fmt: skip
        return figure


def is_curve(document: SweepDocument) -> bool:
    """Whether the first option's values are numbers, along which a line says something."""
    return positions(document.axes[0].values) is not None


def _lines_of(document: SweepDocument) -> list[tuple[tuple[str, ...], str]]:
    """Values of the other options, of as many lines as there are colours, and what they are called."""
    rest = dict.fromkeys(point.values[1:] for point in document.points)
    return [(others, one_line(", ".join(others)) or "best plan") for others in list(rest)[: len(_LINES)]]


def _subject(document: SweepDocument) -> str:
    """The model where it is the same everywhere, else what varies."""
    models = {point.model for point in document.points if point.model}
    names = " × ".join(axis.name for axis in document.axes)
    return f"{next(iter(models))}: {names}" if len(models) == 1 else names


def _draw_grid(
    axes: Any, document: SweepDocument, grid: Sequence[Sequence[SweepPoint]], caption: str, wide: float
) -> None:
    across = len(grid[0])
    each = (wide - 1.4) / across
    for down, row in enumerate(grid):
        for column, point in enumerate(row):
            axes.add_patch(_cell_patch(column, down, point))
            lines = _cell_words(point, each)
            axes.text(column + 0.5, down + 0.5, "\n".join(lines), ha="center", va="center", fontsize=8.2, color=_DARK)
    axes.set_xlim(0, across)
    axes.set_ylim(len(grid), 0)
    longest = max(4, int(each * 13))
    axes.set_xticks(
        [at + 0.5 for at in range(across)],
        [shortened(one_line(v), longest) for v in document.axes[1].values] if len(document.axes) > 1 else [""],
    )
    axes.set_yticks(
        [at + 0.5 for at in range(len(grid))], [shortened(one_line(v), 16) for v in document.axes[0].values]
    )
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=9, labelcolor=INK, pad=3)
    axes.spines[:].set_visible(False)
    second = document.axes[1].name if len(document.axes) > 1 else ""
    words_above = f"{document.axes[0].name} ↓   {second} →" if second else f"{document.axes[0].name} ↓"
    axes.text(-1.25 * across / (wide - 1.4), -0.62, caption or words_above, fontsize=8.5, color=MUTED, va="center")


def _cell_patch(column: int, down: int, point: SweepPoint) -> Any:
    from matplotlib.patches import Rectangle

    share = share_used(point)
    if point.verdict == "refused":
        colour: Any = _REFUSED
    elif not fits(point) or share is None:
        colour = _LOST
    else:
        colour = _HEAT(min(1.0, share))
    return Rectangle((column + 0.015, down + 0.03), 0.97, 0.94, facecolor=colour, linewidth=0)


def _cell_words(point: SweepPoint, inches: float) -> list[str]:
    """Up to three short lines; the verdict in words wherever it is not `fits`."""
    share, plan = share_used(point), point.plan
    if point.verdict == "refused":
        return ["refused"]
    first = f"{share:.0%}" if share is not None else ""
    if point.verdict != "fits":
        first = f"{first} {VERDICTS[point.verdict]}".strip()
    if not fits(point) or plan is None:
        return [first]
    longest = max(6, int(inches * 13))
    lines = [first, shortened(words.strategy_words(plan.strategy), longest)]
    if plan.speed is not None:
        lines.append(
            shortened(_short_rate(plan.speed.tokens_per_second_per_gpu, plan.speed.samples_per_second), longest)
        )
    return lines


def _short_rate(tokens: float | None, samples: float) -> str:
    value, unit = (samples, "/s") if tokens is None else (tokens, " tok/s")
    return f"{value / 1000:.1f}k{unit}" if value >= 1000 else f"{value:.3g}{unit}"


def _used(point: SweepPoint) -> float | None:
    memory = None if point.plan is None else point.plan.memory
    return None if memory is None else memory.device_used_bytes / GIB


def _rate(point: SweepPoint) -> float | None:
    """Tokens per second of all devices."""
    speed = None if point.plan is None else point.plan.speed
    if speed is None or speed.tokens_per_second_per_gpu is None or not fits(point):
        return None
    return speed.tokens_per_second_per_gpu * (point.gpus or 1)


def _samples(point: SweepPoint) -> float | None:
    speed = None if point.plan is None else point.plan.speed
    return speed.samples_per_second if speed is not None and fits(point) else None


def positions(values: Sequence[str]) -> list[float] | None:
    """Numbers that values stand for: `8k`, `4`, the devices of `2x8xH100`; None where one stands for none."""
    found = []
    for value in values:
        number, gpus = _NUMBER.fullmatch(value), _GPUS.match(value)
        if number:
            found.append(float(number[1]) * (1024 if number[2] else 1))
        elif gpus:
            found.append(float(int(gpus[1] or 1) * int(gpus[2])))
        else:
            return None
    return found if len(set(found)) == len(found) and min(found) > 0 else None


def _draw_curves(axes: Any, document: SweepDocument, figure_of: Any) -> None:
    first = document.axes[0]
    numbers = positions(first.values)
    at = numbers or list(map(float, range(len(first.values))))
    for colour, (others, label) in zip(_LINES, _lines_of(document), strict=False):
        mine = [point for point in document.points if point.values[1:] == others]
        pairs = [(x, figure_of(point), fits(point)) for x, point in zip(at, mine, strict=True)]
        known = [(x, y) for x, y, _ in pairs if y is not None]
        axes.plot(
            *(zip(*known, strict=True) if known and numbers else ((), ())), color=colour, label=label, zorder=3,
            linewidth=1.5 if numbers else 0, marker="None" if numbers else "o", markersize=5,
        )  # fmt: skip
        for x, y, good in pairs:
            if y is not None:
                face = colour if good else "none"
                axes.plot([x], [y], "o", markersize=5, markerfacecolor=face, markeredgecolor=colour, zorder=4)
    if numbers and max(numbers) / min(numbers) > 3:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
    labels, named = _ticks(first)
    axes.set_xticks(at, labels, rotation=25 if max(map(len, labels)) > _LEVEL else 0, fontsize=8.5)
    axes.set_xlabel(named, fontsize=9, color=MUTED)
    axes.tick_params(axis="y", labelsize=8.5)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(bottom=0)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def _ticks(axis: SweepAxis) -> tuple[list[str], str]:
    """Labels of an axis and its name; clusters of one kind of GPU by their number."""
    kinds = {found[1] for value in axis.values if (found := _KIND.search(value))}
    numbers = positions(axis.values)
    if axis.name == "gpus" and len(kinds) == 1 and numbers:
        return [f"{number:.0f}" for number in numbers], f"number of GPUs ({next(iter(kinds))})"
    return [shortened(one_line(value), 14) for value in axis.values], axis.name


def _draw_capacity(axes: Any, document: SweepDocument) -> None:
    memories = [point.plan.memory for point in document.points if point.plan is not None and point.plan.memory]
    capacities = {memory.capacity_bytes for memory in memories}
    if len(capacities) == 1:
        capacity = next(iter(capacities)) / GIB
        axes.axhline(capacity, color=ALARM, linewidth=1.3, zorder=2)
        axes.set_ylim(0, max(capacity, *(memory.device_used_bytes / GIB for memory in memories)) * 1.06)


def _draw_ideal(axes: Any, document: SweepDocument, figure_of: Any) -> None:
    at = positions(document.axes[0].values)
    known = [(x, y) for x, point in zip(at or (), document.points, strict=False) if (y := figure_of(point))]
    if not at or not known:
        return
    # A plan that offloads is slow for another reason than too few devices: nothing grows in proportion from there.
    plain = [
        pair
        for pair, point in zip(
            [(x, figure_of(point)) for x, point in zip(at, document.points, strict=False)],
            document.points,
            strict=False,
        )
        if pair[1] and point.plan is not None and point.plan.strategy.offload == "none"
    ]
    x0, y0 = plain[0] if plain else known[0]
    base = "the first that fits" if not plain or plain[0] == known[0] else "the first that does not offload"
    axes.plot(
        [x for x, _ in known], [y0 * x / x0 for x, _ in known], color=EDGE, linewidth=1.2, linestyle=(0, (4, 3)),
        label=f"in proportion to {base}", zorder=1,
    )  # fmt: skip
