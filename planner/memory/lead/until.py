"""When the host knows what waits to be done, by code alone: for each schedule, the moment of each free of a log.

What the host waits for is complete, and with it what that stood behind, on its own stream and on those that this one
had waited for: a vector clock. Where the host does not wait, the queue of launches bounds how far it is ahead. A moment
is a launch or a wait of the host, by its number.

`_streams.c` does what `plain` does, number by number (tests/unit/memory/test_compiled_streams.py).
"""

from collections import deque
from operator import le

import numpy as np

from gpu_plan.planner.memory.lead.compiled import COMPILED, streams
from gpu_plan.planner.memory.lead.log import STREAMS, WIDTHS, Did, Log
from gpu_plan.planner.memory.lead.play import DEFAULT_STREAM, MAX_QUEUED_LAUNCHES
from gpu_plan.planner.memory.lead.schedules import LIMITED, RUNS_AHEAD, Schedule
from gpu_plan.planner.trace.events import IntArray

NEVER = -1
"""In place of a moment: not before the allocator itself waits for the device."""
_Clock = tuple[int, ...]
"""Last work of each stream that is complete, by the stream's number; 0 for none."""


def until(log: Log) -> IntArray:
    """Moments from which on the host knows each block that waits to be done [schedules, frees]; `NEVER` for none."""
    return _compiled(log) if COMPILED else plain(log)


def _compiled(log: Log) -> IntArray:
    found = np.empty((len(RUNS_AHEAD), log.frees), dtype=np.int64)
    entries, launches = (np.asarray(column, dtype=np.int64) for column in (log.entries, log.launches))
    streams.until(entries, launches, found, log.works, MAX_QUEUED_LAUNCHES)
    return found


def plain(log: Log) -> IntArray:
    """In Python."""
    known = _Known(log.frees)
    clocks = [[0] * STREAMS for _ in range(STREAMS)]
    works: dict[int, _Clock] = {}
    launches, launched = iter(log.launches), -1
    queued: deque[tuple[int, _Clock]] = deque()
    entries, at, moment = log.entries.tolist(), 0, -1
    while at < len(entries):
        did, *told = entries[at : at + WIDTHS[entries[at]]]
        at += WIDTHS[did]
        if did == Did.LAUNCHED:
            launched, moment = next(launches), moment + 1
        elif did == Did.WAITED:
            work, waiter, on = told
            clocks[on][on] = work
            clocks[waiter] = list(map(max, clocks[on], clocks[waiter]))
        elif did == Did.HOST_WAITED:
            schedules, work, behind = told
            moment += 1
            if behind:
                event, before = works[work], works[behind]
                others = (own or earlier for own, earlier in zip(event[1:], before[1:], strict=True))
                known.suppose((before[DEFAULT_STREAM], *others), moment, LIMITED)
            known.suppose(works[work], moment, [one for one in RUNS_AHEAD if schedules >> one & 1])
        elif did != Did.SENT:
            work, stream = told
            clocks[stream][stream] = work
            works[work] = tuple(clocks[stream])
            if did == Did.FREED:
                known.waits(stream, works[work])
            elif launched >= 0:  # the event that stands behind what was launched
                passed: _Clock = ()
                if queued and queued[-1][0] == launched:
                    queued[-1] = launched, works[work]
                else:
                    while queued and queued[0][0] <= launched - MAX_QUEUED_LAUNCHES:
                        passed = queued.popleft()[1]
                    queued.append((launched, works[work]))
                if passed:
                    known.suppose(passed, moment, RUNS_AHEAD)
                launched = -1
    return known.until


class _Known:
    """What the host knows to be complete, and of which frees."""

    def __init__(self, frees: int) -> None:
        self.until = np.full((len(RUNS_AHEAD), frees), NEVER, dtype=np.int64)
        self._frees = 0
        self._done: dict[Schedule, int] = dict.fromkeys(RUNS_AHEAD, 0)
        """Last work of the computing stream."""
        self._lagging: _Clock = (0,) * STREAMS
        """Of every stream, where the others lag."""
        self._pending: dict[int, tuple[deque[tuple[int, _Clock]], ...]] = {}
        """By stream, for each schedule, in order of their frees: a stream's clock only grows, so that the first done
        come first."""

    def waits(self, stream: int, clock: _Clock) -> None:
        """The next block that is freed."""
        if stream not in self._pending:
            self._pending[stream] = tuple(deque() for _ in RUNS_AHEAD)
        for pending in self._pending[stream]:
            pending.append((self._frees, clock))
        self._frees += 1

    def suppose(self, event: _Clock, moment: int, schedules: "tuple[Schedule, ...] | list[Schedule]") -> None:
        """In these schedules the host then knows that what the event stands behind is complete, wait or not."""
        for schedule in schedules:
            done = self._done[schedule] = max(self._done[schedule], event[DEFAULT_STREAM])
            lags = schedule is Schedule.LAGS
            if lags:
                self._lagging = tuple(map(max, self._lagging, event))
            for by_schedule in self._pending.values():
                pending = by_schedule[schedule]
                while pending and pending[0][1][DEFAULT_STREAM] <= done:
                    if lags and not all(map(le, pending[0][1], self._lagging)):
                        break
                    self.until[schedule, pending.popleft()[0]] = moment


__all__ = ["NEVER", "plain", "until"]
