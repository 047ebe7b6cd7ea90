"""The heap in C (`_blocks.c`), where it was built: equal to `heap.py` and `expandable.py` event by event.

A search simulates hundreds of runs of tens of thousands of events; in Python they are most of its time. A platform
without a compiler, or a setting that bends the best fit, takes those.
"""

from typing import Any

import numpy as np

from gpu_plan.planner.memory.allocator.calls import of_rows
from gpu_plan.planner.memory.allocator.heap import NEVER
from gpu_plan.planner.memory.allocator.played import Played, device_limit
from gpu_plan.planner.memory.allocator.settings import (
    LARGE_ROUNDING,
    MIN_BLOCK,
    MIN_LARGE,
    SMALL_LIMIT,
    SMALL_SEGMENT,
    AllocatorSettings,
    IntArray,
)

try:
    from gpu_plan.planner.memory.allocator import _blocks  # type: ignore[attr-defined]
except ImportError:
    _blocks = None

_INTERFACE = 3
"""Of `_blocks.replay`; what was built from other source is left alone."""
COMPILED = getattr(_blocks, "INTERFACE", None) == _INTERFACE
"""Whether the compiled heap is there."""


class CompiledRun:
    """Events that are run several times, as the kernel takes them; arguments as of `replay`, sizes rounded already."""

    def __init__(
        self,
        signs: IntArray,
        tensors: IntArray,
        rounded: IntArray,
        streams: IntArray | None,
        settings: AllocatorSettings,
    ) -> None:
        small = rounded <= SMALL_LIMIT
        codes = small.astype(np.int64) if streams is None else 2 * streams + small
        self._kinds = np.flatnonzero(np.bincount(codes))
        places = np.zeros(int(self._kinds[-1]) + 1 if len(self._kinds) else 0, dtype=np.int64)
        places[self._kinds] = np.arange(len(self._kinds))
        small_pools, grows = self._kinds % 2 == 1, settings.expandable_segments
        least = np.where(small_pools | grows, MIN_BLOCK, SMALL_LIMIT + 1)
        pages = np.where(small_pools, settings.page(True), settings.page(False)) * grows
        segments = _segment_sizes(rounded, settings)
        self._arrays = tuple(map(_flat, (signs, tensors, rounded, segments, places[codes], least, pages)))
        self._settings = settings
        self.num_events = len(signs)

    def played(self, *, capacity: int | None, descending_addresses: bool, returns: IntArray | None) -> Played:
        """The whole run. ValueError as of `replay`."""
        told = np.empty((2, self.num_events), dtype=np.int64)
        handled, reserved, calls, retried, settled = self._run(capacity, descending_addresses, returns, told)
        return Played(
            charged=told[0, :handled],
            addresses=told[1, :handled],
            reserved=reserved,
            calls=of_rows(_rows(calls, 4), self._kinds, mapped=self._settings.expandable_segments),
            retried_at=tuple(_rows(retried, 1)[:, 0].tolist()),
            settled=_rows(settled, 2),
        )

    def peak_reserved(self, *, descending_addresses: bool, returns: IntArray | None) -> int:
        """Most that is taken from a device without limit, and nothing else."""
        _, _, calls, _, _ = self._run(None, descending_addresses, returns, None)
        return int(np.cumsum(_rows(calls, 4)[:, 1]).max(initial=0))

    def _run(
        self, capacity: int | None, descending_addresses: bool, returns: IntArray | None, told: IntArray | None
    ) -> tuple[int, int, bytes, bytes, bytes]:
        """`told` takes each event's block, its bytes and its address [2, events]; None: nobody asks."""
        device = NEVER if capacity is None else capacity
        # Of ranges the process's limit is asked before anything is mapped, the device's page by page.
        limit = device_limit(self._settings, None if self._settings.expandable_segments else capacity)
        behind = None if returns is None else _flat(returns)
        played: tuple[int, int, bytes, bytes, bytes] = _blocks.replay(
            *self._arrays, behind, *((None, None) if told is None else told), limit, device, descending_addresses
        )
        return played


def _rows(raw: bytes, width: int) -> IntArray:
    return np.frombuffer(raw, dtype=np.int64).reshape(-1, width)


def _flat(values: Any) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int64)


def _segment_sizes(rounded: IntArray, settings: AllocatorSettings) -> IntArray:
    """`segment_size` of every element."""
    large = np.where(
        rounded < MIN_LARGE, settings.large_segment_size, (rounded + (LARGE_ROUNDING - 1)) & -LARGE_ROUNDING
    )
    return np.where(rounded <= SMALL_LIMIT, SMALL_SEGMENT, large)
