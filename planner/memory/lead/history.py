"""How far the host is ahead of the device, in seconds: what of the possible schedules a run can take at all.

Without seconds a schedule is bounded by code alone: the host waits for everything, or runs ahead until its code or the
queue of launches holds it (gpu_plan.planner.memory.schedule). A host that is certainly slower than the device is never
ahead of it; one that is certainly faster never is not. `History` is what was queued, in order; played with a `Pace` it
says when the host finds each waiting block done.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from gpu_plan.planner.memory.lead.log import Log
from gpu_plan.planner.memory.lead.pace import Pace, Paces
from gpu_plan.planner.memory.lead.play import Launched, launched, played
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What was queued on a rank's streams."""

    log: Log
    freed: IntArray
    """Event that frees each block that waits, in the order of the log's; -1 where none was placed."""
    moments: IntArray
    """First event behind each moment of the log, and behind the last one the end."""
    ahead: int = 0
    """Events that stand before all of these."""

    def behind(self, ahead: int) -> "History":
        """The same where so many events more stand before it."""
        return replace(self, ahead=self.ahead + ahead)

    def returns(self, pace: Pace, events: int, *, limited: bool) -> IntArray:
        """Event from which on what each of `events` frees can be handed out again; by itself where none waits.

        `limited`: whether the host waits where it is not known whether its code holds it.
        """
        at, returns = self._at(), np.arange(events)
        returns[at] = self._behind(at, pace, None, limited=limited)
        return returns

    def possible(self, paces: Paces, queued: IntArray, others: Iterable[IntArray]) -> list[IntArray]:
        """Schedules that a run can take: the least and the most that the host is ahead, and the others between them.

        `queued`: the most by its code alone.
        """
        # Only what waits is looked at: what is freed at once is so in every schedule.
        at, by = self._at(), launched(self.log, len(paces.most[0].host))
        late = [self._behind(at, pace, by, limited=False) for pace in paces.most]
        soon = [self._behind(at, pace, by, limited=True) for pace in paces.least]
        most = np.minimum(np.maximum.reduce(late), queued[at])
        least = np.minimum(np.minimum.reduce(soon), most)
        found = []
        for waits in (least, most, *(np.clip(other[at], least, most) for other in others)):
            returns = np.arange(len(queued), dtype=queued.dtype)
            returns[at] = waits
            found.append(returns)
        return found

    def _at(self) -> IntArray:
        """Events that free what waits."""
        return self.freed[self.freed >= 0] + self.ahead

    def _behind(self, at: IntArray, pace: Pace, by: Launched | None, *, limited: bool) -> IntArray:
        """First event behind the return of each of these."""
        done, after, reached = played(self.log, pace, limited=limited, by=by)
        moments = np.maximum(np.searchsorted(reached, done, side="left"), after)
        return np.maximum(self.moments[moments[self.freed >= 0]] + self.ahead, at)


__all__ = ["History"]
