"""When a freed block can be handed out again: the host's calls against the work that is queued on the device's streams.

A block on which a stream was recorded goes back to its pool only once the events that its free left on those streams
have completed, and the allocator finds that out in a later request (pytorch c10/cuda/CUDACachingAllocator.cpp: free,
insert_events, process_events). When they complete is a question of timing, but for two bounds: the host may wait for
everything at once, or run ahead until its own code makes it wait. What it then knows to be complete is what the event
that it waited for stood behind, on its own stream and on those that this one had waited for: a vector clock.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum
from operator import le

from gpu_plan.planner.memory.lead.log import STREAMS, Log
from gpu_plan.planner.memory.lead.play import DEFAULT_STREAM, MAX_QUEUED_LAUNCHES
from gpu_plan.planner.plain.values import dataclass

Moment = tuple[int, int]
"""Point of the run, and number of the strategy's own event: moments in their order."""

Clock = tuple[int, ...]
"""Last work of each stream that is complete once an event is, by the stream's number; 0 for none."""


class Schedule(IntEnum):
    """How far the host is ahead of the device."""

    WAITS = -1
    """Nowhere: whatever was freed can be taken again at once."""
    AHEAD = 0
    """As far as its code lets it, while the other streams finish with what they wait for."""
    LAGS = 1
    """As far as its code lets it, while the other streams finish as late as anything that was waited for allows."""
    QUEUED = 2
    """Past what its code waits for on the way, until the device's queue of launches is full."""


RUNS_AHEAD = (Schedule.AHEAD, Schedule.LAGS, Schedule.QUEUED)
LIMITED = (Schedule.AHEAD, Schedule.LAGS)
"""Schedules in which the host waits where its code says so."""


@dataclass(slots=True)
class Waits:
    """A free that waits; for each schedule in which the host runs ahead the moment from which the block serves again.

    A schedule that is missing: not before the allocator itself waits for the device.
    """

    clock: Clock
    until: dict[Schedule, Moment] = field(default_factory=dict)
    number: int = -1
    """Which of the frees that its streams have queued it is."""


class DeviceStreams:
    """Work queued on streams, in the order in which the host queues it."""

    def __init__(self) -> None:
        self.log = Log()
        """Everything in its order, for whoever knows how long each takes (gpu_plan.planner.memory.lead)."""
        self.moments: list[Moment] = []
        """Of the log's launches and of what the host waits for."""
        self._clocks = [[0] * STREAMS for _ in range(STREAMS)]
        self._done: dict[Schedule, int] = dict.fromkeys(RUNS_AHEAD, 0)
        """Last work of the computing stream that the host knows to be complete."""
        self._known: Clock = (0,) * STREAMS
        """Of every stream, where the others lag."""
        self._launched: deque[tuple[int, Clock]] = deque()
        self._pending: dict[int, tuple[deque[Waits], ...]] = {}
        """By stream, for each schedule, in order of their frees: a stream's clock only grows, so that the first done
        come first."""

    def record(self, stream: int) -> Clock:
        """Event.record: everything queued on the stream so far, and what it waited for."""
        clock = self._clocks[stream]
        clock[stream] = self.log.recorded(stream)
        return tuple(clock)

    def wait(self, waiter: int, on: int) -> None:
        """Stream.wait_stream: what is queued on `waiter` from now on comes after all that is queued on `on`."""
        source = self._clocks[on]
        source[on] = self.log.waited(waiter, on)
        self._clocks[waiter] = list(map(max, source, self._clocks[waiter]))

    def free(self, stream: int) -> Waits:
        """A block is freed that `stream`, recorded on it, may still use."""
        clock = self._clocks[stream]
        clock[stream] = self.log.freed(stream)
        waits = Waits(tuple(clock), number=self.log.frees - 1)
        if stream not in self._pending:
            self._pending[stream] = tuple(deque() for _ in RUNS_AHEAD)
        for pending in self._pending[stream]:
            pending.append(waits)
        return waits

    def send(self, stream: int, what: str, nbytes: int, issued: tuple[int, int]) -> None:
        """A collective is queued on a stream."""
        self.log.sends(stream, what, nbytes, issued)

    def launched(self, kernels: int, moment: Moment) -> None:
        """The host has launched so many kernels in all on the computing stream: none that is further back waits."""
        self.log.launched(kernels)
        self.moments.append(moment)
        queued = self._launched
        if queued and queued[-1][0] == kernels:
            queued[-1] = kernels, self.record(DEFAULT_STREAM)
            return
        passed: Clock = ()
        while queued and queued[0][0] <= kernels - MAX_QUEUED_LAUNCHES:
            passed = queued.popleft()[1]
        queued.append((kernels, self.record(DEFAULT_STREAM)))
        if passed:
            self.suppose(passed, moment, RUNS_AHEAD)

    def host_waits(self, event: Clock, moment: Moment, schedules: Sequence[Schedule] = RUNS_AHEAD) -> None:
        """Event.synchronize: what the event stands behind is complete, and the host knows it."""
        self.log.host_waited(event, always=Schedule.QUEUED in schedules)
        self.moments.append(moment)
        self.suppose(event, moment, schedules)

    def suppose(self, event: Clock, moment: Moment, schedules: Sequence[Schedule]) -> None:
        """In these schedules the host then knows that what the event stands behind is complete, wait or not."""
        computed = event[DEFAULT_STREAM]
        for schedule in schedules:
            done = self._done[schedule]
            if computed > done:
                done = self._done[schedule] = computed
            lags = schedule is Schedule.LAGS
            if lags:
                self._known = tuple(map(max, self._known, event))
            for by_schedule in self._pending.values():
                pending = by_schedule[schedule]
                while pending and pending[0].clock[DEFAULT_STREAM] <= done:
                    if lags and not all(map(le, pending[0].clock, self._known)):
                        break
                    pending.popleft().until[schedule] = moment


__all__ = [
    "DEFAULT_STREAM",
    "LIMITED",
    "MAX_QUEUED_LAUNCHES",
    "RUNS_AHEAD",
    "Clock",
    "DeviceStreams",
    "Moment",
    "Schedule",
    "Waits",
]
