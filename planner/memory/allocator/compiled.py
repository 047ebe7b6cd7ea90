"""The heap in C (`_blocks.c`), where it was built: equal to `heap.py` and `expandable.py` event by event.

A search simulates hundreds of runs of tens of thousands of events; in Python they are most of its time. A platform
without a compiler, or a setting that bends the best fit, takes those.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.memory.allocator.calls import of_rows
from gpu_plan.planner.memory.allocator.heap import NEVER
from gpu_plan.planner.memory.allocator.played import Played, Taken, device_limit
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

_INTERFACE = 4
"""Of `_blocks.replay`; what was built from other source is left alone."""
COMPILED = getattr(_blocks, "INTERFACE", None) == _INTERFACE
"""Whether the compiled heap is there."""
_LAST = np.iinfo(np.int32).max
"""Behind every event."""


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
        of = np.empty(len(rounded), dtype=np.int32)
        wide = None if streams is None else _flat(streams, np.int64)
        firsts = np.frombuffer(_blocks.classes(_flat(rounded, np.int64), wide, of), dtype=np.int32)
        sizes = rounded[firsts]
        small = sizes <= SMALL_LIMIT
        self._kinds, pools = np.unique(small + (0 if wide is None else 2 * wide[firsts]), return_inverse=True)
        small_pools, grows = self._kinds % 2 == 1, settings.expandable_segments
        least = np.where(small_pools | grows, MIN_BLOCK, SMALL_LIMIT + 1)
        pages = np.where(small_pools, settings.page(True), settings.page(False)) * grows
        told = (sizes, _segment_sizes(sizes, settings), pools, least, pages)
        # Events are as narrow as those of a stream, which are taken as they lie.
        self._arrays = (_flat(signs, np.int8), _flat(tensors, np.int32), of, *(_flat(one, np.int64) for one in told))
        self._settings = settings
        self.num_events, self._tensors = len(signs), len(rounded)

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

    def taken(
        self, *, capacity: int | None, descending_addresses: bool, returns: IntArray | None, blocks: IntArray | None
    ) -> Taken:
        """What the whole run takes from the device, and nothing else; `blocks` [tensors] is told the bytes of each
        tensor's last block. ValueError as of `replay`."""
        handled, reserved, calls, retried, _ = self._run(capacity, descending_addresses, returns, None, blocks)
        return Taken(
            event=_rows(calls, 4)[:, 0],
            change=_rows(calls, 4)[:, 1],
            reserved_at_end=reserved,
            retried_at=tuple(_rows(retried, 1)[:, 0].tolist()),
            complete=handled == self.num_events,
        )

    def _run(
        self,
        capacity: int | None,
        descending_addresses: bool,
        returns: IntArray | None,
        told: IntArray | None,
        blocks: IntArray | None = None,
    ) -> tuple[int, int, bytes, bytes, bytes]:
        """`told` takes each event's block, its bytes and its address [2, events]; None: nobody asks."""
        device = NEVER if capacity is None else capacity
        # Of ranges the process's limit is asked before anything is mapped, the device's page by page.
        limit = device_limit(self._settings, None if self._settings.expandable_segments else capacity)
        behind = None if returns is None else _flat(np.minimum(returns, _LAST), np.int32)
        played: tuple[int, int, bytes, bytes, bytes] = _blocks.replay(
            *self._arrays,
            behind,
            *((None, None) if told is None else told),
            blocks,
            limit,
            device,
            descending_addresses,
        )
        return played


def _rows(raw: bytes, width: int) -> IntArray:
    return np.frombuffer(raw, dtype=np.int64).reshape(-1, width)


def _flat(values: Any, dtype: type[np.signedinteger[Any]]) -> NDArray[np.signedinteger[Any]]:
    return np.ascontiguousarray(values, dtype=dtype)


def _segment_sizes(rounded: IntArray, settings: AllocatorSettings) -> IntArray:
    """`segment_size` of every element."""
    large = np.where(
        rounded < MIN_LARGE, settings.large_segment_size, (rounded + (LARGE_ROUNDING - 1)) & -LARGE_ROUNDING
    )
    return np.where(rounded <= SMALL_LIMIT, SMALL_SEGMENT, large)
