"""How far the host is ahead of the device, in seconds: what of the possible schedules a run can take at all.

Without seconds a schedule is bounded by code alone: the host waits for everything, or runs ahead until its code or the
queue of launches holds it (gpu_plan.planner.memory.schedule). A host that is certainly slower than the device is never
ahead of it; one that is certainly faster never is not. `History` is what was queued, in order; played with a `Pace` it
says when the host finds each waiting block done.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpu_plan.planner.memory.schedule import DEFAULT_STREAM, MAX_QUEUED_LAUNCHES, Did, Entry
from gpu_plan.planner.trace.events import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds under one bound of every rate."""

    host: FloatArray
    """That the host takes to issue each kernel of a pass, [kernels]."""
    device: FloatArray
    """That each of them runs, [kernels]."""
    hook: float
    """That the host takes to issue one operator of a collective's hooks."""
    many_hooks: bool
    """Whether hooks issue as many operators as they may, or as few."""
    sent: Callable[[str, int], float]
    """Of a collective by its kind and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """What bounds the host's lead from both sides; each with links between devices that are slow, and fast."""

    least: Sequence[Pace]
    """A slow host beside a fast device."""
    most: Sequence[Pace]
    """A fast host beside a slow device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What was queued on a rank's streams."""

    log: Sequence[Entry]
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
        return self._returns(_that_count(self.log), pace, events, limited=limited)

    def _returns(self, log: Sequence[Entry], pace: Pace, events: int, *, limited: bool) -> IntArray:
        done, after, reached = _played(log, pace, limited=limited)
        found = np.maximum(np.searchsorted(reached, done, side="left"), after)
        places = self.moments[found] + self.ahead
        placed = self.freed >= 0
        returns = np.arange(events)
        at = self.freed[placed] + self.ahead
        returns[at] = np.maximum(places[placed], at)
        return returns

    def possible(self, paces: Paces, queued: IntArray, others: Iterable[IntArray]) -> list[IntArray]:
        """Schedules that a run can take: the least and the most that the host is ahead, and the others between them.

        `queued`: the most by its code alone.
        """
        events, log = len(queued), _that_count(self.log)
        late = [self._returns(log, pace, events, limited=False) for pace in paces.most]
        soon = [self._returns(log, pace, events, limited=True) for pace in paces.least]
        most = np.minimum(np.maximum.reduce(late), queued)
        least = np.minimum(np.minimum.reduce(soon), most)
        return [least, most, *(np.clip(other, least, most) for other in others)]


def _played(log: Sequence[Entry], pace: Pace, *, limited: bool) -> tuple[FloatArray, IntArray, FloatArray]:
    """One run of a log, in seconds since its beginning: when each block that waits is done, the moment behind its free;
    when the host reaches each moment.

    One loop, for it goes over ten thousand entries, four times for a plan.
    """
    done: list[float] = []
    after: list[int] = []
    reached: list[float] = []
    host = 0.0
    streams: defaultdict[int, float] = defaultdict(float)  # when what is queued on each so far is done
    works: dict[int, float] = {}
    queue: deque[tuple[int, float]] = deque([(0, 0.0)])
    launched, recorded, waited, freed, sent = Did.LAUNCHED, Did.RECORDED, Did.WAITED, Did.FREED, Did.SENT
    launches = _launches([entry[1] for entry in log if entry[0] is launched], pace)
    for entry in log:
        did = entry[0]
        if did is launched:
            kernels, issue, run = next(launches)
            if kernels > queue[-1][0]:
                host += issue
                if run:
                    streams[DEFAULT_STREAM] = max(streams[DEFAULT_STREAM] + run, host)
                queue.append((kernels, streams[DEFAULT_STREAM]))
            else:  # what is queued behind the same kernels is done no sooner
                queue[-1] = kernels, streams[DEFAULT_STREAM]
            while queue[0][0] <= kernels - MAX_QUEUED_LAUNCHES:
                host = max(host, queue.popleft()[1])
            reached.append(host)
        elif did is waited:
            _, work, waiter, on = entry
            over = streams[on]
            works[work] = over = over if over > host else host
            if over > streams[waiter]:
                streams[waiter] = over
        elif did is freed or did is recorded:
            over = streams[entry[2]]
            works[entry[1]] = over = over if over > host else host
            if did is freed:
                done.append(over)
                after.append(len(reached))
        elif did is sent:
            _, stream, what, nbytes, issued = entry
            host += pace.hook * issued[pace.many_hooks]
            streams[stream] = max(streams[stream], host) + pace.sent(what, nbytes)
        else:
            _, over_works, always = entry
            if always or limited:
                host = max(host, *(works[work] for work in over_works))
            reached.append(host)
    return np.asarray(done), np.asarray(after, dtype=np.int64), np.asarray(reached)


def _launches(kernels: Sequence[int], pace: Pace) -> Iterator[tuple[int, float, float]]:
    """Of each launch the kernels so far, and the seconds that those since the one before take to issue and to run."""
    upto = np.maximum.accumulate(np.asarray([0, *kernels], dtype=np.int64))
    issue, run = (np.diff(_seconds(of_each, upto)).tolist() for of_each in (pace.host, pace.device))
    return zip(upto[1:].tolist(), issue, run, strict=True)


def _that_count(log: Sequence[Entry]) -> list[Entry]:
    """Without works that nobody waits for: each launch records one."""
    waited = {work for entry in log if entry[0] is Did.HOST_WAITED for work in entry[1]}
    return [entry for entry in log if entry[0] is not Did.RECORDED or entry[1] in waited]


def _seconds(of_each: FloatArray, upto: IntArray) -> FloatArray:
    """Seconds of so many kernels, pass after pass."""
    cumulated = np.concatenate([[0.0], np.cumsum(of_each)])
    passes, rest = np.divmod(upto, len(of_each))
    found: FloatArray = passes * cumulated[-1] + cumulated[rest]
    return found


__all__ = ["History", "Pace", "Paces"]
