"""What was asked of the driver, as columns: a run makes hundreds of calls, of which most are only summed up."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from gpu_plan.planner.memory.allocator.heap import Action, DriverCall
from gpu_plan.planner.memory.allocator.settings import IntArray
from gpu_plan.planner.plain.values import dataclass


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


def of_rows(rows: IntArray, kinds: IntArray, *, mapped: bool) -> DriverCalls:
    """Rows of event, change, address and pool [calls, 4], of pages that are mapped or of whole segments; `kinds`: what
    each pool serves, twice the stream, and one more for small blocks."""
    taken = Action.SEGMENT_MAP if mapped else Action.SEGMENT_ALLOC
    given = Action.SEGMENT_UNMAP if mapped else Action.SEGMENT_FREE
    made = cache(lambda: tuple(_call(row, kinds, taken, given) for row in rows.tolist()))
    return DriverCalls(event=rows[:, 0], change=rows[:, 1], made=made)


def _call(row: list[int], kinds: IntArray, taken: Action, given: Action) -> DriverCall:
    event, change, address, pool = row
    kind = int(kinds[pool])
    return DriverCall(event, taken if change > 0 else given, address, abs(change), kind // 2, bool(kind % 2))
