"""A step's allocated memory in as many columns as a screen can show; numbers alone, no words."""

from itertools import pairwise

import numpy as np

from gpu_plan.planner.memory.profile import alive_at, phase_at
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.memory.timeline import iteration_at
from gpu_plan.planner.trace.events import CATEGORIES, IntArray
from gpu_plan.tui.engine.messages import Columns

COUNT = 192
"""Columns that are kept; a screen draws as many of them as it is wide."""


def columns(stream: RankStream, blocks: IntArray, count: int = COUNT, edges: IntArray | None = None) -> Columns | None:
    """The iteration that peaks, in at most `count` columns; None where nothing is ever allocated.

    `blocks`: bytes that the allocator charges for each storage. `edges`: the events at which columns begin, and the end
    of what is drawn, in place of the iteration.
    """
    live = np.cumsum(stream.event_sign * blocks[stream.event_tensor])
    if not len(live):
        return None
    if edges is None:
        _, first, last = iteration_at(stream, int(np.argmax(live)), len(live))
        edges = np.unique(np.linspace(first, last, min(count, last - first) + 1).astype(np.int64))
    first, last = int(edges[0]), int(edges[-1])
    tensors = stream.event_tensor[first:last]
    changes = np.zeros((last - first, len(CATEGORIES)), dtype=np.int64)
    rows = np.arange(last - first)
    changes[rows, stream.category[tensors]] = stream.event_sign[first:last] * blocks[tensors]
    standing = alive_at(stream, first - 1) if first else np.zeros(len(blocks), dtype=np.int64)
    start = np.bincount(stream.category, weights=blocks * standing, minlength=len(CATEGORIES)).astype(np.int64)
    levels = changes.cumsum(axis=0) + start
    total = live[first:last]
    highest = [int(a + np.argmax(total[a:b])) for a, b in pairwise((edges - first).tolist())]
    peak = int(np.argmax(total))
    return Columns(
        categories=tuple(str(category) for category in CATEGORIES),
        levels=tuple(tuple(int(size) for size in levels[at]) for at in highest),
        phases=tuple(str(phase_at(stream, first + at)) for at in highest),
        peak=highest.index(peak),
        events=last - first,
    )
