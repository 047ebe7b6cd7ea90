"""Plots of ranks: what each of a pipeline, or of ranks that are not alike, holds at its peak, and when a pipeline's
compute or wait."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpu_plan.planner.pipeline.schedules import Action, Kind, Schedule, actions
from gpu_plan.planner.pipeline.timeline import Timeline, run
from gpu_plan.planner.plan.document import AtPeak, Candidate
from gpu_plan.planner.units import GIB
from gpu_plan.reports.plots.style import ALARM, COLOURS, GRID, INK, MUTED, TITLE_INCHES, add_title, style

MOST_ACTIONS = 2400
"""Beyond so many, single micro batches are not drawn: only how long each rank computes."""
_FORWARD, _BACKWARD, _WAITS = "#4e79a7", "#f28e2b", "#dddddd"


def memory_by_stage(candidate: Candidate, width: float = 9.6, *, titled: bool = False) -> Figure:
    """A stacked bar for each rank of the pipeline, the device's capacity as a line. `width` in inches."""
    rows = [(f"stage {place}", one.at_peak) for place, one in enumerate(candidate.stages)]
    title = "memory by stage" if titled else ""
    return _memory(candidate, rows, "GiB allocated at the peak of each stage's rank", width, title)


def memory_by_rank(candidate: Candidate, width: float = 9.6, *, titled: bool = False) -> Figure:
    """The same for each kind of rank, where ranks are not alike."""
    rows = [(f"{one.count * one.replicas:,} × rank {one.ranks[0][0]}", one.at_peak) for one in candidate.ranks]
    title = "memory by kind of rank" if titled else ""
    return _memory(candidate, rows, "GiB allocated at the peak of each kind of rank", width, title)


def _memory(candidate: Candidate, rows: Sequence[tuple[str, AtPeak]], label: str, width: float, title: str) -> Figure:
    assert candidate.memory is not None
    with style():
        figure, axes = _bars([name for name, _ in rows], width, 2 if width >= 6 else 3, bool(title))
        if title:
            add_title(figure, title, "allocated at each rank's own peak, GiB")
        keys: dict[str, None] = {}
        for row, (_, at_peak) in enumerate(rows):
            start = 0.0
            for name, size in at_peak.items().items():
                if size:
                    keys[name] = None
                    axes.barh(row, size / GIB, left=start, height=0.6, color=COLOURS[name], linewidth=0)
                    start += size / GIB
            _beside(axes, row, f"{start:.1f}" if start >= 0.1 else f"{start:.3f}")
        axes.axvline(candidate.memory.capacity_bytes / GIB, color=ALARM, linewidth=1.4, zorder=5)
        axes.set_xlabel(label, fontsize=9, labelpad=2)
        _legend(figure, {name: COLOURS[name] for name in COLOURS if name in keys}, width)
        return figure


def waiting_by_stage(candidate: Candidate, width: float = 9.6, *, titled: bool = False) -> Figure:
    """When each rank of the pipeline computes: every forward and backward of a step, or their sums where there are too
    many. A rank's time is shared out between both as that of the slowest rank is."""
    assert candidate.speed is not None
    with style():
        names = [f"stage {place}" for place in range(len(candidate.stages))]
        figure, axes = _bars(names, width, 1, titled)
        if titled:
            add_title(figure, "one step of the pipeline", "when each rank computes, and when it waits")
        timeline = schedule_of(candidate)
        whole = candidate.speed.step_seconds if timeline is None else timeline.seconds
        for row, one in enumerate(candidate.stages):
            axes.barh(row, whole, height=0.6, color=_WAITS, linewidth=0)
            if timeline is None:
                axes.barh(row, one.busy_seconds, height=0.6, color=_FORWARD, linewidth=0)
                continue
            for forward, colour in ((True, _FORWARD), (False, _BACKWARD)):
                spans = [
                    (span.start, span.end - span.start)
                    for span in timeline.spans
                    if span.rank == row and (span.action.kind is Kind.FORWARD) is forward
                ]
                axes.broken_barh(spans, (row - 0.3, 0.6), facecolor=colour, edgecolor="#ffffff", linewidth=0.3)
        for row, one in enumerate(candidate.stages):
            _beside(axes, row, f"{one.busy_seconds / whole:.0%}" if whole else "")
        axes.set_xlim(0, whole)
        axes.set_xlabel("seconds of a step, before the optimizer's", fontsize=9, labelpad=2)
        named = {"computes": _FORWARD} if timeline is None else {"forward": _FORWARD, "backward": _BACKWARD}
        _legend(figure, {**named, "waits": _WAITS}, width)
        return figure


def schedule_of(candidate: Candidate) -> Timeline | None:
    """The step's actions in time; None where there are too many to tell apart, or the schedule is not known."""
    choice, speed = candidate.strategy, candidate.speed
    if speed is None or choice.schedule not in tuple(Schedule):
        return None
    ranks, local, steps = choice.pipeline_parallel, choice.virtual_stages, choice.gradient_accumulation_steps
    if 2 * ranks * local * steps > MOST_ACTIONS or len(candidate.stages) != ranks:
        return None
    orders = [actions(Schedule(choice.schedule), rank, ranks, local, steps) for rank in range(ranks)]
    return run(orders, _seconds(candidate, orders, local * steps))


def _seconds(candidate: Candidate, orders: Sequence[Sequence[Action]], passes: int) -> Mapping[tuple[Kind, int], float]:
    """Of each stage's forward and backward: a rank's time over its passes, shared out as the slowest rank's is."""
    assert candidate.speed is not None
    parts = candidate.speed.parts
    back = parts["backward"] + parts["recompute"]
    forward = parts["forward"] / ((parts["forward"] + back) or 1)
    found = {}
    for rank, order in enumerate(orders):
        each = candidate.stages[rank].busy_seconds / passes
        for stage in {action.stage for action in order}:
            found[Kind.FORWARD, stage] = each * forward
            found[Kind.BACKWARD, stage] = each * (1 - forward)
            # A document does not tell the halves of a backward that is split apart.
            found[Kind.INPUT, stage] = found[Kind.WEIGHT, stage] = each * (1 - forward) / 2
    return found


def _bars(names: Sequence[str], width: float, legend_rows: int, titled: bool) -> tuple[Figure, Any]:
    """Axes with a row for each name, first on top."""
    count = len(names)
    head = TITLE_INCHES if titled else 0.0
    foot = 0.42 + 0.24 * legend_rows
    height = 0.2 + max(0.1, min(0.34, 8 / count)) * count + foot + head
    figure = Figure(figsize=(width, height))
    axes = figure.subplots()
    figure.subplots_adjust(
        left=(0.3 + 0.075 * max(map(len, names))) / width,
        right=1 - 0.6 / width,
        top=1 - (0.08 + head) / height,
        bottom=foot / height,
    )
    axes.set_ylim(count - 0.4, -0.6)
    step = 1 + count // 24
    axes.set_yticks(range(0, count, step), names[::step])
    axes.tick_params(axis="x", labelsize=8.5)
    axes.tick_params(axis="y", left=False, labelcolor=INK, labelsize=8.5)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    return figure, axes


def _beside(axes: Any, row: int, text: str) -> None:
    axes.annotate(
        text, (1, row), (6, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center",
        fontsize=8.5, color=MUTED, annotation_clip=False,
    )  # fmt: skip


def _legend(figure: Figure, named: Mapping[str, str], width: float) -> None:
    handles: list[Any] = [Patch(color=colour, label=name.replace("_", " ")) for name, colour in named.items()]
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.1 / width, 0), ncols=3 if width < 6 else 5, frameon=False,
        fontsize=8.5, handlelength=1.2, columnspacing=1.2, borderaxespad=0.1,
    )  # fmt: skip
