"""The peak of a rank's stream as the highest of a few lines in the micro batch.

Every storage takes a fixed part and a part in proportion to the batch, so that what is allocated after an event is a
line, and the peak their upper envelope: of tens of thousands of events a handful are ever the highest. Blocks are
rounded up, which bends a line only where a sample's part is no multiple of a block: batches that leave the same
remainder, by the number of samples that fill whole blocks, lie on straight lines again.
"""

from dataclasses import field
from math import gcd

import numpy as np

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray

BLOCK = 512
"""CUDA's caching allocator rounds every request up to this many bytes (pytorch c10/cuda/CUDACachingAllocator.cpp)."""
_WORTH = 4
"""Batches of one remainder that are summed event by event before lines are looked for: finding them costs as much."""

Line = tuple[int, int]
"""Bytes at the remainder, and bytes for each further sample."""


@dataclass(slots=True)
class Peaks:
    """Of one stream; arrays are those of `RankStream`."""

    _period: int = 0
    """Samples that fill whole blocks of every storage; 0: not looked at yet."""
    _asked: dict[int, int] = field(default_factory=dict)
    """By remainder, how often."""
    _lines: dict[int, list[Line]] = field(default_factory=dict)

    def of(self, micro_batch: int, signs: IntArray, tensors: IntArray, fixed: IntArray, per_sample: IntArray) -> int:
        """Most bytes that are allocated after any event at a micro batch."""
        if not self._period:
            self._period = BLOCK // gcd(BLOCK, int(np.gcd.reduce(per_sample, initial=0)))
        rest = micro_batch % self._period
        lines = self._lines.get(rest)
        if lines is None:
            self._asked[rest] = self._asked.get(rest, 0) + 1
            if self._asked[rest] <= _WORTH:
                return int(np.cumsum(signs * _rounded(fixed + per_sample * micro_batch)[tensors]).max(initial=0))
            at_rest = np.cumsum(signs * _rounded(fixed + per_sample * rest)[tensors])
            # What is followed by an allocation, or is no allocation, is nowhere the highest.
            tops = np.append((signs[:-1] > 0) & (signs[1:] < 0), signs[-1:] > 0)
            lines = self._lines[rest] = envelope(at_rest[tops], np.cumsum(signs * per_sample[tensors])[tops])
        more = micro_batch - rest
        return max((height + slope * more for height, slope in lines), default=0)


def envelope(heights: IntArray, slopes: IntArray) -> list[Line]:
    """Those of the lines `heights + slopes * x` that are the highest for some x from 0 on."""
    # The steepest first; of those less steep only what starts higher than all before.
    order = np.lexsort((-heights, -slopes))
    ordered = heights[order]
    before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ordered)[:-1]])
    kept = order[ordered > before]
    found: list[Line] = []
    for line in zip(heights[kept].tolist(), slopes[kept].tolist(), strict=True):
        while len(found) > 1 and _hidden(found[-2], found[-1], line):
            found.pop()
        found.append(line)
    return found


def _hidden(steeper: Line, between: Line, flatter: Line) -> bool:
    """Whether the line between two others is nowhere above both."""
    return (between[0] - steeper[0]) * (between[1] - flatter[1]) <= (flatter[0] - between[0]) * (
        steeper[1] - between[1]
    )


def _rounded(sizes: IntArray) -> IntArray:
    return (sizes + (BLOCK - 1)) & -BLOCK
