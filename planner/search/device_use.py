"""What one rank takes of its device, and the verdict on it: the same for a training step and for a generation."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

import numpy as np

from gpu_plan.planner.memory.allocator.replay import DEFAULT_SETTINGS, Runs
from gpu_plan.planner.memory.allocator.result import AllocatorResult
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.memory.overheads import Term, cached_blocks
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.memory.schedule import Schedule
from gpu_plan.planner.memory.stream import RankStream
from gpu_plan.planner.trace.events import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the simulated caching allocator says."""

    reserved_bytes: int
    """Peak reserved on a device without limit."""
    reserved_under_pressure: int | None
    """Peak reserved under the real capacity, cached memory given back on the way; None where it runs out."""
    retries: int
    """How often cached memory was given back under the real capacity."""
    caches: bool = True
    """Whether the device has a caching allocator at all."""
    extremes: Callable[[], tuple[int, int]] | None = field(default=None, compare=False, repr=False)
    """The least and the most that stays reserved, over everything that nobody decides; simulated when asked for."""


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
        """The least that the device must have: what the allocator can make do with."""
        held = self._held
        if self.simulated is not None and self.simulated.reserved_under_pressure is not None:
            held = min(held, self.simulated.reserved_under_pressure + self._host)
        return held + sum(term.low for term in self.terms)

    @property
    def high_bytes(self) -> int:
        return self._held + sum(term.high for term in self.terms)

    @property
    def verdict(self) -> str:
        """`fits` when the high end is within capacity, `no` when the run ends out of memory, else `tight`."""
        if self.high_bytes <= self.capacity_bytes:
            return "fits"
        runs_out = self.simulated is not None and self.simulated.reserved_under_pressure is None
        return "no" if runs_out or self.low_bytes > self.capacity_bytes else "tight"

    @property
    def cached(self) -> Term | None:
        """What the allocator keeps beyond the tensors at the peak, as far as that is known."""
        if self.simulated is None or not self.simulated.caches:
            return None
        simulated, allocated = self.simulated, self.profile.peak_allocated_bytes
        reserved = simulated.reserved_bytes
        low, high = (reserved, reserved) if simulated.extremes is None else simulated.extremes()
        room = self.capacity_bytes - allocated - sum(term.high for term in self.terms)
        return cached_blocks(
            reserved - allocated, low - allocated, high - allocated, room, pressed=bool(simulated.retries)
        )

    @property
    def used_bytes(self) -> int:
        """What the device is expected to show in use: of a run that gives cached memory back, once it has settled."""
        return max(self.used_low_bytes, min(self.expected_bytes, self.used_high_bytes))

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
        plain = Simulated(reserved_bytes=held, reserved_under_pressure=held, retries=0, caches=False)
        return replace(use, simulated=plain), stream.sizes(micro_batch)

    runs = Runs(stream, micro_batch, settings)
    free = runs.result(schedule=Schedule.AHEAD)
    reserved, blocks = free.peak_reserved_bytes, free.block_bytes(len(stream.fixed))

    @cache
    def extremes() -> tuple[int, int]:
        # What ran first is one of them; without waiting blocks every schedule is the same.
        schedules = (Schedule.AHEAD,) if stream.event_return is None else tuple(Schedule)
        again = Runs(stream, micro_batch, settings)
        peaks = [
            again.peak_reserved(schedule=schedule, descending_addresses=descending_addresses)
            for schedule in schedules
            for descending_addresses in _ORDERS
            if (schedule, descending_addresses) != (Schedule.AHEAD, False)
        ]
        return min(reserved, *peaks), max(reserved, *peaks)

    exact = replace(
        use,
        profile=measure(stream, micro_batch, blocks),
        simulated=Simulated(reserved_bytes=reserved, reserved_under_pressure=reserved, retries=0, extremes=extremes),
    )
    if exact.high_bytes <= exact.capacity_bytes:
        return exact, blocks
    room = exact.capacity_bytes - sum(term.low for term in exact.terms)
    limited = runs.result(schedule=Schedule.AHEAD, capacity=room)

    @cache
    def extremes_under_pressure() -> tuple[int, int]:
        again = Runs(stream, micro_batch, settings)
        other = again.result(schedule=Schedule.AHEAD, descending_addresses=True, capacity=room)
        return _after_retries([limited, other], stream)

    assert exact.simulated is not None
    under_pressure = replace(
        exact.simulated,
        reserved_under_pressure=limited.peak_reserved_bytes if limited.oom_at is None else None,
        retries=limited.num_alloc_retries,
        extremes=extremes_under_pressure if limited.num_alloc_retries and limited.oom_at is None else extremes,
    )
    return replace(exact, simulated=under_pressure), blocks


_ORDERS = (False, True)
"""Addresses that the driver hands out: ascending, descending."""


def _after_retries(limited: list[AllocatorResult], stream: RankStream) -> tuple[int, int]:
    """What stays reserved by a run that gave cached memory back.

    One that does so once, on its way into the second iteration, settles at what it then needs; one that does so in
    every iteration comes back to its peak in each.
    """
    lived = [result for result in limited if result.oom_at is None]
    settled = [result.reserved_at_end for result in lived]
    recurring = [result.peak_reserved_bytes for result in lived if _recurs(result, stream)]
    return min(settled), max(settled + recurring)


def _recurs(result: AllocatorResult, stream: RankStream) -> bool:
    """Whether memory was given back in the first iteration and again in the second."""
    first = int(np.searchsorted(stream.event_segment, stream.step_segments[0], side="right"))
    return {event < first for event in result.retried_at} == {True, False}
