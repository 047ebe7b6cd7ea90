"""When a freed block can be handed out again: the host's calls against the work that is queued on the device's streams.

A block on which a stream was recorded goes back to its pool only once the events that its free left on those streams
have completed, and the allocator finds that out in a later request (pytorch c10/cuda/CUDACachingAllocator.cpp: free,
insert_events, process_events). When they complete is a question of timing, but for two bounds: the host may wait for
everything at once, or run ahead until its own code makes it wait. What it then knows to be complete is what the event
that it waited for stood behind (`gpu_plan.planner.memory.lead.until`).
"""

from collections.abc import Sequence
from functools import cache

from gpu_plan.planner.memory.lead.log import Log
from gpu_plan.planner.memory.lead.play import DEFAULT_STREAM, MAX_QUEUED_LAUNCHES
from gpu_plan.planner.memory.lead.schedules import LIMITED, RUNS_AHEAD, Schedule
from gpu_plan.planner.memory.lead.until import NEVER, until
from gpu_plan.planner.trace.events import IntArray

Moment = tuple[int, int]
"""Point of the run, and number of the strategy's own event: moments in their order."""
Event = int
"""Number of the work that an event stands behind."""
Freed = int
"""Number of a free that waits, among those of its streams."""


@cache
def _bits(schedules: tuple[Schedule, ...]) -> int:
    """A bit of each."""
    return sum(1 << schedule for schedule in schedules)


class DeviceStreams:
    """Work queued on streams, in the order in which the host queues it."""

    def __init__(self) -> None:
        self.log = Log()
        """Everything in its order, for whoever knows how long each takes (gpu_plan.planner.memory.lead)."""
        self.moments: list[Moment] = []
        """Of the log's launches and of what the host waits for."""

    def record(self, stream: int) -> Event:
        """Event.record: everything queued on the stream so far, and what it waited for."""
        return self.log.recorded(stream)

    def wait(self, waiter: int, on: int) -> None:
        """Stream.wait_stream: what is queued on `waiter` from now on comes after all that is queued on `on`."""
        self.log.waited(waiter, on)

    def free(self, stream: int) -> Freed:
        """A block is freed that `stream`, recorded on it, may still use."""
        return self.log.freed(stream)

    def send(self, stream: int, what: str, nbytes: int, issued: tuple[int, int]) -> None:
        """A collective is queued on a stream."""
        self.log.sends(stream, what, nbytes, issued)

    def launched(self, kernels: int, moment: Moment) -> None:
        """The host has launched so many kernels in all on the computing stream: none that is further back waits."""
        self.log.launched_before(kernels, DEFAULT_STREAM)
        self.moments.append(moment)

    def host_waits(
        self, event: Event, moment: Moment, schedules: Sequence[Schedule] = RUNS_AHEAD, *, behind: Event = 0
    ) -> None:
        """Event.synchronize: what the event stands behind is complete in these schedules, and the host knows it.

        `behind` is an event of the computing stream before it: in the schedules in which the host waits where its code
        says so, the work that this one stands behind is then complete as well, and of the other streams what either
        does, the later one first.
        """
        self.log.host_waited(_bits(tuple(schedules)), event, behind)
        self.moments.append(moment)

    def until(self) -> IntArray:
        """Numbers of the moments from which on each block that waits serves again [schedules in which the host runs
        ahead, frees]; NEVER for one that is not back before the allocator itself waits for the device."""
        return until(self.log)


__all__ = [
    "DEFAULT_STREAM",
    "LIMITED",
    "MAX_QUEUED_LAUNCHES",
    "NEVER",
    "RUNS_AHEAD",
    "DeviceStreams",
    "Event",
    "Freed",
    "Moment",
    "Schedule",
]
