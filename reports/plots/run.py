"""Plots of a finished run: memory predicted and measured, by rank and phase, and its steps."""

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.planner.units import GIB, MIB, format_bytes
from gpu_plan.reports.plots.style import ALARM, EDGE, GRID, INK, MUTED, style
from gpu_plan.reports.run.compare import RunComparison
from gpu_plan.reports.run.figures import Compared

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREDICTED, _MEASURED, _LOSS = "#8cb4d8", "#4e79a7", "#f28e2b"


def memory_bars(comparison: RunComparison, width: float) -> Figure | None:
    """A pair of bars for each figure of memory: predicted with its interval, measured. None where there are none."""
    figures = [one for one in (*comparison.memory, *comparison.phases) if one.predicted or one.measured]
    if not figures:
        return None
    with style():
        narrow = width < 6
        height = 0.75 + 0.52 * len(figures)
        figure = Figure(figsize=(width, height))
        axes = figure.subplots()
        figure.subplots_adjust(
            left=(1.25 if narrow else 1.7) / width, right=1 - (0.8 if narrow else 1.0) / width,
            top=1 - 0.05 / height, bottom=0.68 / height,
        )  # fmt: skip
        most = max(value for one in figures for value in (one.predicted, one.measured, one.high) if value)
        unit, name = (GIB, "GiB") if most >= GIB else (MIB, "MiB")
        for row, one in enumerate(figures):
            _pair(axes, row, one, unit)
        axes.set_yticks(range(len(figures)), [_named(one, narrow) for one in figures])
        axes.set_ylim(len(figures) - 0.45, -0.55)
        axes.set_xlim(0, most / unit * 1.02)
        axes.tick_params(axis="y", left=False, labelcolor=INK, labelsize=9)
        axes.tick_params(axis="x", labelsize=8.5)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"{name} on the worst rank", fontsize=9, color=MUTED, loc="left", labelpad=2)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        handles = [_patch(_PREDICTED, "predicted"), _patch(_MEASURED, "measured")]
        figure.legend(handles=handles, loc="lower right", ncols=2, frameon=False, fontsize=8.5, borderaxespad=0.2)
        return figure


def rank_bars(comparison: RunComparison, width: float) -> Figure | None:
    """Each rank's peak, the prediction as a line. None where no rank told one."""
    ranks = [line for line in comparison.ranks if line.peak_bytes is not None]
    if len(ranks) < 2:
        return None
    with style():
        height = 2.3
        figure = Figure(figsize=(width, height))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.7 / width, right=1 - 0.12 / width, top=1 - 0.28 / height, bottom=0.5 / height)
        peaks = [float(line.peak_bytes or 0) for line in ranks]
        predicted = next((one.predicted for one in comparison.memory if one.predicted), None)
        most = max([*peaks, predicted or 0.0])
        unit, name = (GIB, "GiB") if most >= GIB else (MIB, "MiB")
        axes.bar([line.rank for line in ranks], [peak / unit for peak in peaks], color=_MEASURED, width=0.7)
        if predicted:
            axes.axhline(predicted / unit, color=ALARM, linewidth=1.2, linestyle=(0, (4, 2)))
            axes.set_title("dashed: predicted", fontsize=8.5, color=MUTED, loc="left")
        axes.set_ylim(0, most / unit * 1.12)
        axes.set_xlabel("rank", fontsize=9, color=MUTED, labelpad=2)
        axes.set_ylabel(f"peak, {name}", fontsize=9, color=MUTED)
        _plain_axes(axes)
        return figure


def step_curves(run: WholeRun, width: float) -> Figure | None:
    """Seconds of each recorded step of the slowest to start, and its loss where the job told one."""
    steps = run.ranks[0].steps if run.ranks else ()
    if len(steps) < 2:
        return None
    losses = [(step.step, step.loss) for step in steps if step.loss is not None]
    with style():
        height = 2.5
        figure = Figure(figsize=(width, height))
        panels: Sequence[Any] = [figure.subplots()] if not losses else list(figure.subplots(1, 2))
        figure.subplots_adjust(
            left=0.7 / width, right=1 - 0.12 / width, top=1 - 0.3 / height, bottom=0.5 / height, wspace=0.3
        )
        panels[0].plot([one.step for one in steps], [one.seconds for one in steps], color=_MEASURED, linewidth=1.2)
        panels[0].set_title("seconds of a step, rank 0", fontsize=9, color=MUTED, loc="left")
        if losses:
            panels[1].plot(*zip(*losses, strict=True), color=_LOSS, linewidth=1.2)
            panels[1].set_title("loss", fontsize=9, color=MUTED, loc="left")
        for axes in panels:
            axes.set_ylim(bottom=0)
            axes.set_xlabel("step", fontsize=9, color=MUTED, labelpad=2)
            _plain_axes(axes)
        return figure


def _pair(axes: Any, row: int, one: Compared, unit: int) -> None:
    end = 0.0
    for offset, value, colour in ((-0.19, one.predicted, _PREDICTED), (0.19, one.measured, _MEASURED)):
        if value is not None:
            axes.barh(row + offset, value / unit, height=0.34, color=colour, linewidth=0)
            end = max(end, value / unit)
    if one.low is not None and one.high is not None and one.high > one.low:
        axes.plot(
            [one.low / unit, one.high / unit], [row - 0.19] * 2, color=INK, linewidth=1.1, marker="|", markersize=6
        )
    told = "" if one.ratio is None else f"×{one.ratio:.3f}"
    if not one.comparable:
        told = "not\ncomparable"
    elif one.ratio is None:
        told = format_bytes(int(one.measured or one.predicted or 0))
    axes.annotate(
        told, (1, row), (6, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center",
        fontsize=8.5, color=ALARM if one.inside is False else INK, annotation_clip=False,
    )  # fmt: skip


def _named(one: Compared, narrow: bool) -> str:
    name = one.name.replace("_", " ")
    return name.replace(" ", "\n", 1) if narrow and len(name) > 13 else name


def _patch(colour: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label)


def _plain_axes(axes: Any) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(labelsize=8.5)
    axes.spines[["left", "bottom"]].set_color(EDGE)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
