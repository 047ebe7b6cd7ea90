"""Plots of a plan document's memory: what fills the devices plan by plan, and memory against speed."""

from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpu_plan.planner.plan.document import Candidate, MemoryFigures, PlanDocument
from gpu_plan.planner.units import GIB
from gpu_plan.reports.clean import one_line
from gpu_plan.reports.plan import words
from gpu_plan.reports.plan.pareto import pareto_front
from gpu_plan.reports.plots.style import (
    ALARM,
    COLOURS,
    EDGE,
    GRID,
    INK,
    MUTED,
    PAPER,
    TITLE_INCHES,
    add_title,
    shortened,
    style,
)

_LABELS = {"cached": "cached blocks", "outside": "CUDA context, NCCL", "other": "other", "kv_cache": "KV cache"}


def shown_candidates(document: PlanDocument, top: int) -> list[Candidate]:
    """The best `top` plans, and of those that do not fit the nearest of each strategy, at most three."""
    found = [plan for plan in document.plans[:top] if plan.memory is not None]
    seen = {(plan.strategy.name, plan.strategy.offload) for plan in document.plans}
    losers = [rejected for rejected in document.rejected if rejected.memory is not None]
    for rejected in sorted(losers, key=lambda one: -one.memory.headroom_bytes if one.memory else 0):
        kind = (rejected.strategy.name, rejected.strategy.offload)
        if kind not in seen and len(seen - {(p.strategy.name, p.strategy.offload) for p in document.plans}) < 3:
            seen.add(kind)
            found.append(rejected)
    return found


def candidate_label(candidate: Candidate) -> str:
    """`FSDP2 1×4, full ckpt`: short enough for an axis."""
    choice = candidate.strategy
    batch, _ = words.ranking_words(candidate)
    checkpointing = "" if choice.checkpointing == "none" else f", {choice.checkpointing} ckpt"
    name = one_line(words.strategy_words(choice)).replace("optimizer offload", "opt. offload")
    return shortened(f"{name} {batch}{checkpointing}", 40)


def breakdown(document: PlanDocument, width: float = 9.6, top: int = 5, *, titled: bool = False) -> Figure:
    """A stacked bar for each plan, the capacity as a line, the estimate's interval as a whisker. `width` in inches."""
    shown = shown_candidates(document, top)
    narrow = width < 6
    with style():
        rows = 2 if not narrow else 4
        head = TITLE_INCHES if titled else 0.0
        height = 0.5 + (0.62 if narrow else 0.36) * max(1, len(shown)) + 0.24 * rows + head
        figure = Figure(figsize=(width, height))
        axes = figure.subplots()
        left = 0.12 if narrow else 2.5
        figure.subplots_adjust(
            left=left / width,
            right=1 - 0.9 / width,
            top=1 - (0.08 + head) / height,
            bottom=(0.42 + 0.24 * rows) / height,
        )
        if titled:
            add_title(figure, f"{document.model.id} on {document.cluster['spec']}", "memory of the worst rank, GiB")
        if not shown:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "nothing was evaluated in full", ha="center")
            return figure
        keys = _draw_bars(axes, shown, narrow)
        _capacity(axes, shown)
        _legend(figure, keys, width, 3 if narrow else 6)
        return figure


def pareto(document: PlanDocument, width: float = 9.6, *, titled: bool = False) -> Figure:
    """Memory used against speed of every evaluated candidate; those that none beats in both are joined."""
    narrow = width < 6
    with style():
        head = TITLE_INCHES if titled else 0.0
        height = 3.4 + head
        figure = Figure(figsize=(width, height))
        axes = figure.subplots()
        figure.subplots_adjust(
            left=0.72 / width,
            right=1 - 0.15 / width,
            top=1 - (0.22 + head) / height,
            bottom=(0.86 if narrow else 0.66) / height,
        )
        if titled:
            add_title(figure, f"{document.model.id} on {document.cluster['spec']}", "memory against speed")
        evaluated, beyond = _in_view(document)
        if not evaluated:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "nothing was evaluated in full", ha="center")
            return figure
        _draw_points(axes, document, evaluated)
        if beyond:
            axes.text(1, 1.01, f"{beyond} more beyond", transform=axes.transAxes, ha="right", fontsize=8, color=MUTED)
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2 if narrow else 4, frameon=False, fontsize=9
        )
        return figure


def _draw_bars(axes: Any, shown: Sequence[Candidate], narrow: bool) -> list[str]:
    """Bars from the top down; gives the colour keys that were used."""
    keys: dict[str, None] = {}
    for row, candidate in enumerate(shown):
        memory = candidate.memory
        assert memory is not None
        start = 0.0
        for key, size in _parts(memory):
            keys[key] = None
            axes.barh(row, size / GIB, left=start, height=0.56, color=COLOURS[key], linewidth=0)
            start += size / GIB
        low, high = memory.device_used_low_bytes / GIB, memory.device_used_high_bytes / GIB
        if high > low:
            axes.plot([low, high], [row, row], color=INK, linewidth=1.2, marker="|", markersize=7)
        fits = memory.device_used_high_bytes <= memory.capacity_bytes
        verdict = words.VERDICTS[candidate.verdict]
        axes.annotate(
            f"{start:.1f} {verdict}", (1, row), (6, 0), xycoords=axes.get_yaxis_transform(),
            textcoords="offset points", va="center", fontsize=8.5, color=INK if fits else ALARM,
            annotation_clip=False,
        )  # fmt: skip
        if narrow:
            axes.annotate(candidate_label(candidate), (0, row), (0, 13), textcoords="offset points", fontsize=8.5)
    axes.set_ylim(len(shown) - 0.4, -0.75 if narrow else -0.6)
    if narrow:
        axes.set_yticks([])
    else:
        axes.set_yticks(range(len(shown)), [candidate_label(one) for one in shown])
    axes.tick_params(axis="x", labelsize=8.5)
    axes.tick_params(axis="y", left=False, labelcolor=INK, labelsize=9)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlabel("GiB on the worst rank", fontsize=9, labelpad=2)
    return list(keys)


def _parts(memory: MemoryFigures) -> list[tuple[str, int]]:
    """Colour key and bytes; categories in their order, then what lies around them."""
    parts: dict[str, int] = {}
    for key, _, size in words.memory_rows(memory):
        if size > 0:
            parts[key] = parts.get(key, 0) + size
    return list(parts.items())


def _capacity(axes: Any, shown: Sequence[Candidate]) -> None:
    capacities = {one.memory.capacity_bytes for one in shown if one.memory}
    most = max(one.memory.device_used_high_bytes for one in shown if one.memory)
    for capacity in capacities:
        axes.axvline(capacity / GIB, color=ALARM, linewidth=1.4, zorder=5)
    axes.set_xlim(0, max(most, *capacities) / GIB * 1.02)


def _legend(figure: Any, keys: Sequence[str], width: float, columns: int) -> None:
    order = [key for key in COLOURS if key in keys]
    handles: list[Any] = [
        Patch(color=COLOURS[key], label=_LABELS.get(key, key.replace("_", " ").replace("small", "small parts")))
        for key in order
    ]
    handles.append(Line2D([], [], color=ALARM, linewidth=1.4, label="capacity"))
    handles.append(Line2D([], [], color=INK, linewidth=1.2, marker="|", markersize=7, label="interval"))
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.1 / width, 0), ncols=columns, frameon=False, fontsize=8.5,
        handlelength=1.2, columnspacing=1.2, borderaxespad=0.1,
    )  # fmt: skip


_VIEW = 2.0
"""Capacities across: what needs more is counted and not drawn, or those that fit would be one dot."""


def _in_view(document: PlanDocument) -> tuple[list[Candidate], int]:
    """Evaluated candidates near enough to be drawn, and how many are not."""
    found = [one for one in (*document.plans, *document.rejected) if one.memory and one.speed]
    near = [one for one in found if one.memory and one.memory.device_used_bytes <= _VIEW * one.memory.capacity_bytes]
    return (near, len(found) - len(near)) if near else (found, 0)


_MARKS = {"fits": ("o", "#59a14f", "fits"), "tight": ("D", "#f28e2b", "tight"), "no": ("x", ALARM, "does not fit")}


_NAMED = 6
"""Plans of the front whose names are drawn."""
_OFFSETS = ((6, -9), (6, 5), (6, -19), (6, 15), (6, -29))
"""Points beside a plan at which its name may stand."""


def _draw_points(axes: Any, document: PlanDocument, evaluated: Sequence[Candidate]) -> None:
    capacity = evaluated[0].memory.capacity_bytes / GIB if evaluated[0].memory else 0
    tokens = all(one.speed is None or one.speed.tokens_per_second_per_gpu is not None for one in evaluated)
    for verdict, (mark, colour, label) in _MARKS.items():
        points = [_point(one, tokens) for one in evaluated if one.verdict == verdict]
        if points:
            axes.plot(*zip(*points, strict=True), mark, color=colour, markersize=6, label=label, zorder=4)
    best = document.best
    front = sorted((_point(one, tokens), candidate_label(one), one is best) for one in pareto_front(document.plans))
    if front:
        # Between two plans there is none: with that much memory the one before is the fastest.
        line = zip(*(at for at, _, _ in front), strict=True)
        axes.plot(*line, color=EDGE, linewidth=1.4, zorder=2, drawstyle="steps-post", label="fastest in that memory")
    axes.axvline(capacity, color=ALARM, linewidth=1.2, zorder=3)
    if best is not None and best.memory is not None and best.speed is not None:
        at = _point(best, tokens)
        axes.plot(*at, "o", markersize=12, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.2, zorder=5)
        axes.annotate(
            candidate_label(best), at, (0, 11), textcoords="offset points", ha="center", fontsize=8.5, zorder=6,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1, "alpha": 0.8},
        )  # fmt: skip
    axes.set_ylim(0, max(_point(one, tokens)[1] for one in evaluated) * 1.18)
    axes.set_xlim(0, max(capacity, *(_point(one, tokens)[0] for one in evaluated)) * 1.05)
    name_points(axes, [(at, label) for at, label, is_best in front[:_NAMED] if not is_best])
    axes.tick_params(labelsize=8.5)
    axes.set_xlabel("GiB used on the worst rank", fontsize=9, color=MUTED)
    axes.set_ylabel(f"{'tokens' if tokens else 'samples'} per second, all GPUs", fontsize=9, color=MUTED)
    axes.grid(color=GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def name_points(axes: Any, points: Sequence[tuple[tuple[float, float], str]]) -> None:
    """Labels beside their points, each where it crosses no other one: below, above, further below. Limits are set."""
    taken: list[Any] = []
    canvas: Any = FigureCanvasAgg(axes.figure)
    renderer = canvas.get_renderer()
    for at, label in points:
        for offset in _OFFSETS:
            drawn = axes.annotate(label, at, offset, textcoords="offset points", fontsize=7, color=MUTED, zorder=6)
            box = drawn.get_window_extent(renderer)
            if not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            drawn.remove()


def _point(candidate: Candidate, tokens: bool) -> tuple[float, float]:
    """GiB of the worst rank, and what all GPUs do in a second: tokens, or samples."""
    assert candidate.memory is not None
    assert candidate.speed is not None
    each = candidate.speed.tokens_per_second_per_gpu
    rate = each * candidate.strategy.world_size if tokens and each is not None else candidate.speed.samples_per_second
    return candidate.memory.device_used_bytes / GIB, rate
