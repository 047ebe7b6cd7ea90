"""What was asked of the driver, as columns: a run makes hundreds of calls, of which most are only summed up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gpu_plan.planner.memory.allocator.heap import Action, DriverCall
from gpu_plan.planner.memory.allocator.settings import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DriverCalls:
    """Calls in time order."""

    event: IntArray
    """At which each was made [calls]."""
    change: IntArray
    """Bytes by which each makes reserved memory grow or shrink [calls]."""
    made: Callable[[], tuple[DriverCall, ...]]
    """Each as a value of its own."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DriverCalls) and self.made() == other.made()

    def __hash__(self) -> int:
        return hash(self.made())


def listed(calls: Sequence[DriverCall]) -> DriverCalls:
    """Of calls that are values already."""
    kept = tuple(calls)
    event, change = ([getattr(call, name) for call in kept] for name in ("event", "change"))
    return DriverCalls(
        event=np.asarray(event, dtype=np.int64), change=np.asarray(change, dtype=np.int64), made=lambda: kept
    )


def of_segments(rows: IntArray, kinds: IntArray) -> DriverCalls:
    """Of whole segments: rows of event, change, address and pool [calls, 4]; `kinds`: what each pool serves, twice the
    stream, and one more for small blocks."""
    made = cache(lambda: tuple(_call(row, kinds) for row in rows.tolist()))
    return DriverCalls(event=rows[:, 0], change=rows[:, 1], made=made)


def _call(row: list[int], kinds: IntArray) -> DriverCall:
    event, change, address, pool = row
    action = Action.SEGMENT_ALLOC if change > 0 else Action.SEGMENT_FREE
    kind = int(kinds[pool])
    return DriverCall(event, action, address, abs(change), kind // 2, bool(kind % 2))
