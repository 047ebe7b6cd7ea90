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
    total = live[first:last]
    highest = np.asarray([first + a + int(np.argmax(total[a:b])) for a, b in pairwise((edges - first).tolist())])
    # What changed up to each of these moments, and in what: exact in the 53 bits of `bincount`.
    upto, kinds = slice(first, int(highest[-1]) + 1), len(CATEGORIES)
    tensors = stream.event_tensor[upto]
    moment = np.repeat(np.arange(len(highest)), np.diff(highest, prepend=first - 1))
    places = moment * kinds + stream.category[tensors]
    changes = np.bincount(
        places, weights=stream.event_sign[upto] * blocks[tensors], minlength=len(highest) * kinds
    ).reshape(len(highest), kinds)
    standing = alive_at(stream, first - 1) if first else np.zeros(len(blocks), dtype=np.int64)
    start = np.bincount(stream.category, weights=blocks * standing, minlength=kinds)
    levels = (changes.cumsum(axis=0) + start).astype(np.int64)
    peak = first + int(np.argmax(total))
    return Columns(
        categories=tuple(str(category) for category in CATEGORIES),
        levels=tuple(map(tuple, levels.tolist())),
        phases=tuple(str(phase_at(stream, at)) for at in highest.tolist()),
        peak=highest.tolist().index(peak),
        events=last - first,
    )
