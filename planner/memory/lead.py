"""How far the host is ahead of the device, in seconds: what of the possible schedules a run can take at all.

Without seconds a schedule is bounded by code alone: the host waits for everything, or runs ahead until its code or the
queue of launches holds it (gpu_plan.planner.memory.schedule). A host that is certainly slower than the device is never
ahead of it; one that is certainly faster never is not. `History` is what was queued, in order; played with a `Pace` it
says when the host finds each waiting block done.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
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
        done, after, reached = _Play(pace, limited).of(log)
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


class _Play:
    """One run of a log, in seconds since its beginning."""

    def __init__(self, pace: Pace, limited: bool) -> None:
        self._pace, self._limited = pace, limited
        self._host = 0.0
        self._streams: defaultdict[int, float] = defaultdict(float)
        """When what is queued on each stream so far is done."""
        self._works: dict[int, float] = {}
        self._issue = np.concatenate([[0.0], np.cumsum(pace.host)]).tolist()
        self._run = np.concatenate([[0.0], np.cumsum(pace.device)]).tolist()
        self._kernels = 0
        self._queue: deque[tuple[int, float]] = deque([(0, 0.0)])

    def of(self, log: Sequence[Entry]) -> tuple[FloatArray, IntArray, FloatArray]:
        """When each block that waits is done, the moment behind its free; when the host reaches each moment."""
        done: list[float] = []
        after: list[int] = []
        reached: list[float] = []
        streams, works = self._streams, self._works
        launched, recorded, waited, freed = Did.LAUNCHED, Did.RECORDED, Did.WAITED, Did.FREED
        sent = Did.SENT
        for entry in log:
            did = entry[0]
            if did is launched:
                self._launch(entry[1])
                reached.append(self._host)
            elif did is waited:
                _, work, waiter, on = entry
                works[work] = over = streams[on] if streams[on] > self._host else self._host
                if over > streams[waiter]:
                    streams[waiter] = over
            elif did is freed:
                _, work, stream, _ = entry
                works[work] = over = max(streams[stream], self._host)
                done.append(over)
                after.append(len(reached))
            elif did is recorded:
                works[entry[1]] = max(streams[entry[2]], self._host)
            elif did is sent:
                self._send(*entry[1:])
            else:
                self._host_waits(*entry[1:])
                reached.append(self._host)
        return np.asarray(done), np.asarray(after, dtype=np.int64), np.asarray(reached)

    def _launch(self, kernels: int) -> None:
        """Kernels up to this number are issued, and run behind all that their stream waits for."""
        before, queue, streams = self._kernels, self._queue, self._streams
        if kernels > before:
            self._kernels = kernels
            self._host += _upto(self._issue, kernels) - _upto(self._issue, before)
            run = _upto(self._run, kernels) - _upto(self._run, before)
            if run:
                streams[DEFAULT_STREAM] = max(streams[DEFAULT_STREAM] + run, self._host)
            queue.append((kernels, streams[DEFAULT_STREAM]))
        else:  # what is queued behind the same kernels is done no sooner
            queue[-1] = before, streams[DEFAULT_STREAM]
        while queue[0][0] <= self._kernels - MAX_QUEUED_LAUNCHES:
            self._host = max(self._host, queue.popleft()[1])

    def _send(self, stream: int, what: str, nbytes: int, issued: tuple[int, int]) -> None:
        self._host += self._pace.hook * issued[self._pace.many_hooks]
        self._streams[stream] = max(self._streams[stream], self._host) + self._pace.sent(what, nbytes)

    def _host_waits(self, works: tuple[int, ...], always: bool) -> None:
        if always or self._limited:
            self._host = max(self._host, *(self._works[work] for work in works))


def _that_count(log: Sequence[Entry]) -> list[Entry]:
    """Without works that nobody waits for: each launch records one."""
    waited = {work for entry in log if entry[0] is Did.HOST_WAITED for work in entry[1]}
    return [entry for entry in log if entry[0] is not Did.RECORDED or entry[1] in waited]


def _upto(cumulated: Sequence[float], kernels: int) -> float:
    """Seconds of so many kernels, pass after pass."""
    passes, rest = divmod(kernels, len(cumulated) - 1)
    return passes * cumulated[-1] + cumulated[rest]


__all__ = ["History", "Pace", "Paces"]
