"""The plain heap in C (`_blocks.c`), where it was built: equal to `heap.py` event by event.

A search simulates hundreds of runs of tens of thousands of events; in Python they are most of its time. A platform
without a compiler, or a setting that bends the best fit, takes `heap.py`.
"""

from typing import Any

import numpy as np

from gpu_plan.planner.memory.allocator.heap import Action, DriverCall
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

COMPILED = _blocks is not None
"""Whether the compiled heap is there."""


def run_compiled(
    signs: IntArray,
    tensors: IntArray,
    rounded: IntArray,
    streams: IntArray | None,
    *,
    settings: AllocatorSettings,
    capacity: int | None,
    descending_addresses: bool,
    returns: IntArray | None,
) -> Played:
    """As `replay`, for settings that bend nothing; sizes are rounded already. ValueError as of `replay`."""
    small = rounded <= SMALL_LIMIT
    codes = small.astype(np.int64) if streams is None else 2 * streams + small
    kinds, pools = np.unique(codes, return_inverse=True)
    least = np.where(kinds % 2 == 1, MIN_BLOCK, SMALL_LIMIT + 1)
    charged, addresses = np.empty(len(signs), dtype=np.int64), np.empty(len(signs), dtype=np.int64)
    handled, reserved, calls, retried, settled = _blocks.replay(
        _flat(signs),
        _flat(tensors),
        _flat(rounded),
        _flat(_segment_sizes(rounded, settings)),
        _flat(pools),
        _flat(least),
        None if returns is None else _flat(returns),
        charged,
        addresses,
        device_limit(settings, capacity),
        descending_addresses,
    )
    return Played(
        charged=charged[:handled],
        addresses=addresses[:handled],
        reserved=reserved,
        calls=tuple(_call(row, kinds) for row in np.frombuffer(calls, dtype=np.int64).reshape(-1, 4).tolist()),
        retried_at=tuple(np.frombuffer(retried, dtype=np.int64).tolist()),
        settled=np.frombuffer(settled, dtype=np.int64).reshape(-1, 2),
    )


def _flat(values: Any) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int64)


def _segment_sizes(rounded: IntArray, settings: AllocatorSettings) -> IntArray:
    """`segment_size` of every element."""
    large = np.where(rounded < MIN_LARGE, settings.large_segment_size, -(-rounded // LARGE_ROUNDING) * LARGE_ROUNDING)
    return np.where(rounded <= SMALL_LIMIT, SMALL_SEGMENT, large)


def _call(row: list[int], kinds: IntArray) -> DriverCall:
    event, change, address, pool = row
    action = Action.SEGMENT_ALLOC if change > 0 else Action.SEGMENT_FREE
    kind = int(kinds[pool])
    return DriverCall(event, action, address, abs(change), kind // 2, bool(kind % 2))
