"""What a run through a heap came to, before anything is made of it."""

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


def device_limit(settings: AllocatorSettings, capacity: int | None) -> int:
    """Bytes that the allocator may take from the device."""
    return min(NEVER if given is None else given for given in (capacity, settings.process_limit))
