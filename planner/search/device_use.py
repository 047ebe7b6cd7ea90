"""What one rank takes of its device, and the verdict on it: the same for a training step and for a generation."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

from gpu_plan.planner.memory.allocator.replay import DEFAULT_SETTINGS, simulate
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.memory.overheads import Term, cached_blocks
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.memory.stream import RankStream
from gpu_plan.planner.trace.events import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the simulated caching allocator says."""

    reserved_bytes: int
    """Peak reserved on a device without limit."""
    squeezed_bytes: int | None
    """Peak reserved under the real capacity, cached memory given back on the way; None where the run dies."""
    retries: int
    """How often cached memory was given back under the real capacity."""
    caches: bool = True
    """Whether the device has a caching allocator at all."""
    other_order: Callable[[], int] | None = field(default=None, compare=False, repr=False)
    """Peak reserved without limit where the driver hands out falling addresses; simulated when it is asked for."""
    waiting_bytes: int = 0
    """Of these figures: freed blocks that wait for the GPU before they can be taken again, which it may not let
    happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """Memory of one rank against its device; bytes."""

    profile: MemoryProfile
    terms: tuple[Term, ...]
    """What lies outside the allocator."""
    host_bytes: int
    nvme_bytes: int = 0
    """In files on the node's disk."""
    capacity_bytes: int
    """Of the device, without what is kept free for others."""
    waiting_bytes: int = 0
    """Of blocks that were freed and that the allocator cannot hand out before the GPU is done with them."""
    simulated: Simulated | None = None
    """None where only the tensors were summed: a lower bound."""
    shares_host: bool = False
    """Whether the device's memory is the host's (CPU ranks): what goes to the host stays within capacity."""

    @property
    def _held(self) -> int:
        """Bytes that the allocator takes from the device without limit, or at least."""
        held = self.simulated.reserved_bytes if self.simulated else self.profile.peak_allocated_bytes
        return held + self._host

    @property
    def _host(self) -> int:
        """Bytes on the host where that is the device."""
        return self.host_bytes if self.shares_host else 0

    @property
    def expected_bytes(self) -> int:
        return self._held + sum(term.expected for term in self.terms)

    @property
    def least_bytes(self) -> int:
        """What the tensors alone take, and the least of what lies outside the allocator."""
        return self.profile.peak_allocated_bytes + self._host + sum(term.low for term in self.terms)

    @property
    def low_bytes(self) -> int:
        """The least that the device must have: what the allocator can be squeezed to."""
        held = self._held
        if self.simulated is not None and self.simulated.squeezed_bytes is not None:
            held = min(held, self.simulated.squeezed_bytes + self._host)
        return held + sum(term.low for term in self.terms)

    @property
    def high_bytes(self) -> int:
        return self._held + sum(term.high for term in self.terms)

    @property
    def verdict(self) -> str:
        """`fits` when the high end is within capacity, `no` when the run dies, else `tight`."""
        if self.high_bytes <= self.capacity_bytes:
            return "fits"
        dies = self.simulated is not None and self.simulated.squeezed_bytes is None
        return "no" if dies or self.low_bytes > self.capacity_bytes else "tight"

    @property
    def cached(self) -> Term | None:
        """What the allocator keeps beyond the tensors at the peak, as far as that is known."""
        if self.simulated is None or not self.simulated.caches:
            return None
        simulated, allocated = self.simulated, self.profile.peak_allocated_bytes
        room = self.capacity_bytes - allocated - sum(term.high for term in self.terms)
        other = simulated.reserved_bytes if simulated.other_order is None else simulated.other_order()
        term = cached_blocks(
            simulated.reserved_bytes - allocated, other - allocated, room, pressed=bool(simulated.retries)
        )
        return replace(term, low=max(term.low - simulated.waiting_bytes, 0))

    @property
    def used_low_bytes(self) -> int:
        """The least that the device can show in use."""
        cached = self.cached
        if cached is None:
            return self.expected_bytes
        return self.profile.peak_allocated_bytes + cached.low + sum(term.low for term in self.terms)

    @property
    def used_high_bytes(self) -> int:
        """The most that the device can show in use."""
        cached = self.cached
        if cached is None:
            return self.high_bytes
        return self.profile.peak_allocated_bytes + cached.high + sum(term.high for term in self.terms)


Use = TypeVar("Use", bound=DeviceUse)


def simulated(
    use: Use,
    stream: RankStream,
    micro_batch: int,
    *,
    settings: AllocatorSettings = DEFAULT_SETTINGS,
    caches: bool,
) -> tuple[Use, IntArray]:
    """`use` with the caching allocator simulated, under the real capacity where it must be, and each storage's bytes.

    Without one (`caches` is False: a CPU) what is allocated is what is held.
    """
    if not caches:
        held = use.profile.peak_allocated_bytes
        plain = Simulated(reserved_bytes=held, squeezed_bytes=held, retries=0, caches=False)
        return replace(use, simulated=plain), stream.sizes(micro_batch)
    free = simulate(stream, micro_batch, settings=settings)
    reserved, blocks = free.peak_reserved_bytes + use.waiting_bytes, free.block_bytes(len(stream.fixed))

    @cache
    def other_order() -> int:
        other = simulate(stream, micro_batch, settings=settings, falling=True)
        return other.peak_reserved_bytes + use.waiting_bytes

    exact = replace(
        use,
        profile=measure(stream, micro_batch, blocks),
        simulated=Simulated(
            reserved_bytes=reserved,
            squeezed_bytes=reserved,
            retries=0,
            other_order=other_order,
            waiting_bytes=use.waiting_bytes,
        ),
    )
    if exact.high_bytes <= exact.capacity_bytes:
        return exact, blocks
    room = exact.capacity_bytes - sum(term.low for term in exact.terms)
    limited = simulate(stream, micro_batch, capacity=room, settings=settings)
    squeezed = limited.peak_reserved_bytes if limited.oom_at is None else None
    assert exact.simulated is not None
    under_pressure = replace(exact.simulated, squeezed_bytes=squeezed, retries=limited.num_alloc_retries)
    return replace(exact, simulated=under_pressure), blocks
