"""What a run through a heap came to, before anything is made of it."""

import numpy as np

from gpu_plan.planner.memory.allocator.calls import DriverCalls
from gpu_plan.planner.memory.allocator.heap import NEVER
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings, IntArray
from gpu_plan.planner.plain.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Arrays have one entry per handled event: all, or those before the request that failed."""

    charged: IntArray
    addresses: IntArray
    reserved: int
    """Bytes taken from the driver at the end."""
    calls: DriverCalls
    retried_at: tuple[int, ...]
    settled: IntArray
    """Blocks that waited and came back [blocks, 2]: the event, and their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taken:
    """What a run takes from the device, call by call, and nothing of what it does with it; bytes."""

    event: IntArray
    """At which each call was made [calls]."""
    change: IntArray
    """Bytes by which each makes reserved memory grow or shrink [calls]."""
    reserved_at_end: int
    retried_at: tuple[int, ...]
    """Events at which cached memory was given back for want of room."""
    complete: bool
    """Whether every request was met."""

    @property
    def peak_reserved_bytes(self) -> int:
        """Call by call, not event by event: memory can be taken and given back within one request."""
        return int(np.cumsum(self.change).max(initial=0))


def device_limit(settings: AllocatorSettings, capacity: int | None) -> int:
    """Bytes that the allocator may take from the device."""
    return min(NEVER if given is None else given for given in (capacity, settings.process_limit))
