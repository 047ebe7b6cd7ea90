"""What is queued on a rank's streams, in the order in which the host queues it; numbers alone, for there are thousands.

Works (a recorded event, a wait, a free) are numbered from 1.
"""

from array import array
from dataclasses import field
from enum import IntEnum

from gpu_plan.planner.plain.values import dataclass

STREAMS = 5
"""As many as any strategy queues work on."""


class Did(IntEnum):
    """What an entry of the log says, and which numbers follow."""

    LAUNCHED = 0
    """The next of the launches."""
    RECORDED = 1
    """Number of the work, its stream."""
    WAITED = 2
    """Number of the work, who waits, on which stream."""
    FREED = 3
    """Number of the work, its stream."""
    SENT = 4
    """Stream of the next of what is sent."""
    HOST_WAITED = 5
    """The schedules in which the host then knows that a work is complete, a bit of each, and that work; and one of the
    computing stream before it, or 0 (`until`)."""


WIDTHS = (1, 3, 4, 3, 2, 4)
"""Numbers of each entry, itself included."""
_LAUNCHED, _RECORDED, _WAITED, _FREED, _SENT, _HOST_WAITED = map(int, Did)


def _numbers() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class Log:
    """Everything in its order, and of what has more to it than fits there the rest, in columns."""

    entries: "array[int]" = field(default_factory=_numbers)
    """One entry behind the other."""
    launches: "array[int]" = field(default_factory=_numbers)
    """Kernels launched so far, by launch."""
    sent: "array[int]" = field(default_factory=_numbers)
    """Three numbers of what is sent: its message, and the fewest and most operators that issue it."""
    messages: dict[tuple[str, int], int] = field(default_factory=dict)
    """Kinds and bytes of what is sent, and their numbers."""
    works: int = 0
    """Numbered so far."""
    frees: int = 0
    moments: int = 0
    """Launches and waits of the host."""

    def launched(self, kernels: int) -> None:
        """So many kernels in all."""
        self.moments += 1
        self.launches.append(kernels)
        self.entries.append(_LAUNCHED)

    def launched_before(self, kernels: int, stream: int) -> int:
        """The same, and what a stream has then is a work: its number."""
        self.moments += 1
        self.works += 1
        self.launches.append(kernels)
        self.entries.extend((_LAUNCHED, _RECORDED, self.works, stream))
        return self.works

    def recorded(self, stream: int) -> int:
        """The number of the work."""
        self.works += 1
        self.entries.extend((_RECORDED, self.works, stream))
        return self.works

    def waited(self, waiter: int, on: int) -> None:
        """For all that `on` had before, which is a work."""
        self.works += 1
        self.entries.extend((_WAITED, self.works, waiter, on))

    def freed(self, stream: int) -> int:
        """Something is done with once a work is, which is another number: that of the free."""
        self.works += 1
        self.entries.extend((_FREED, self.works, stream))
        self.frees += 1
        return self.frees - 1

    def sends(self, stream: int, what: str, nbytes: int, issued: tuple[int, int]) -> None:
        """A collective; `issued`: fewest and most operators that issue it."""
        message = self.messages.setdefault((what, nbytes), len(self.messages))
        self.sent.extend((message, *issued))
        self.entries.extend((_SENT, stream))

    def host_waited(self, schedules: int, work: int, behind: int = 0) -> None:
        """For one work; numbers as in `Did`."""
        self.moments += 1
        self.entries.extend((_HOST_WAITED, schedules, work, behind))


__all__ = ["STREAMS", "WIDTHS", "Did", "Log"]
