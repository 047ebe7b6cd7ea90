"""A step stream by stream, as a picture: what computes, what is sent meanwhile, and what is waited for."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpu_plan.planner.plan.drawn.lanes import Lane, drawable, step_seconds
from gpu_plan.reports.plots.style import MUTED, style

_COLOURS = {
    "forward": "#4e79a7", "backward": "#f28e2b", "gradient of the input": "#f28e2b",
    "gradients of the weights": "#edc948", "optimizer": "#76b7b2", "transfers": "#b07aa1",
}  # fmt: skip
_SENT = ("#b07aa1", "#59a14f", "#9c755f", "#8cb4d8", "#ff9da7", "#e15759")
"""Of transfers, by their kinds in their order."""


def streams_panel(lanes: Sequence[Lane], width: float) -> Figure:
    """One row for each stream, seconds along the bottom. `width` in inches."""
    whole = step_seconds(lanes)
    colours = _colours(lanes)
    with style():
        rows, below = 0.36 * len(lanes), 0.8 if width >= 6 else 1.0
        figure = Figure(figsize=(width, rows + below + 0.1))
        left = 0.16 if width >= 6 else 0.28
        axes = figure.add_axes((left, below / (rows + below + 0.1), 0.98 - left, rows / (rows + below + 0.1)))
        for row, lane in enumerate(lanes):
            shown = drawable(lane, whole)
            for name, colour in colours.items():
                spans = [(span.start, span.seconds) for span in shown if span.name == name]
                axes.broken_barh(spans, (row - 0.32, 0.64), facecolor=colour, linewidth=0)
        axes.set_yticks(range(len(lanes)), [lane.name for lane in lanes])
        axes.set_ylim(len(lanes) - 0.5, -0.5)
        axes.set_xlim(0, whole)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("seconds of a step", fontsize=9, labelpad=2, color=MUTED)
        keys = [Patch(facecolor=colour, label=name.replace("_", "-")) for name, colour in colours.items()]
        figure.legend(handles=keys, loc="lower center", ncols=5 if width >= 6 else 3, frameon=False, fontsize=8)
    return figure


def _colours(lanes: Sequence[Lane]) -> dict[str, str]:
    """By the name of what runs, in the order in which it comes."""
    names = dict.fromkeys(span.name for lane in lanes for span in lane.spans)
    others = [name for name in names if name not in _COLOURS]
    sent = {name: _SENT[place % len(_SENT)] for place, name in enumerate(others)}
    return {name: _COLOURS.get(name) or sent[name] for name in names}
