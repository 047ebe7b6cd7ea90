"""What one rank takes of its device, and the verdict on it: the same for a training step and for a generation."""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cache, partial
from typing import TypeVar

import numpy as np

from gpu_plan.planner.memory.allocator.compiled import COMPILED
from gpu_plan.planner.memory.allocator.replay import DEFAULT_SETTINGS, Runs, Taken
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.memory.lead.pace import Paces
from gpu_plan.planner.memory.overheads import Term, cached_blocks
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.memory.schedule import LIMITED, Schedule
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.aside.at_once import at_once
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
    device_bytes: int | None = None
    """All that the device has, what nobody can use included; None where that is not known."""
    paces: Callable[[], Paces | None] | None = field(default=None, compare=False, repr=False)
    """How far the host can be ahead of the device, by the seconds of the step; None where they are not known."""
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
        expected = min(self.expected_bytes, self.used_high_bytes)
        if self.simulated is not None and self.simulated.retries:
            # It found no room beyond that, whatever the device has beside.
            expected = min(expected, max(self.capacity_bytes, self._expected_tensors))
        return max(self.used_low_bytes, expected)

    @property
    def _expected_tensors(self) -> int:
        """Tensors at the peak, and what is expected outside the allocator."""
        return self.profile.peak_allocated_bytes + sum(term.expected for term in self.terms)

    @property
    def used_low_bytes(self) -> int:
        """The least that the device can show in use."""
        cached = self.cached
        if cached is None:
            return self.expected_bytes
        return self.profile.peak_allocated_bytes + cached.low + sum(term.low for term in self.terms)

    @property
    def fills_device(self) -> bool:
        """Whether it comes back to all of its device in every iteration, however much lies outside the allocator."""
        return self.device_bytes is not None and self.used_high_bytes == self.device_bytes

    @property
    def used_high_bytes(self) -> int:
        """The most that the device can show in use."""
        cached = self.cached
        if cached is None:
            return self.high_bytes
        high = self.profile.peak_allocated_bytes + cached.high + sum(term.high for term in self.terms)
        if self.device_bytes is None or self.simulated is None or not self.simulated.retries:
            return high
        # Where a run fills the device, the more lies outside the allocator, the less is left for it.
        return min(high, max(self.device_bytes, self.used_low_bytes, self._expected_tensors))


T = TypeVar("T")
Use = TypeVar("Use", bound=DeviceUse)


def simulated(
    use: Use,
    stream: RankStream,
    micro_batch: int,
    *,
    settings: AllocatorSettings = DEFAULT_SETTINGS,
    caches: bool,
    pressed: bool = True,
) -> tuple[Use, IntArray]:
    """`use` with the caching allocator simulated, under the real capacity where it must be, and each storage's bytes.

    Without one (`caches` is False: a CPU) what is allocated is what is held. Without `pressed` the real capacity is
    left out: whether it fits is told all the same, and of what does not no more than that.
    """
    if not caches:
        held = use.profile.peak_allocated_bytes
        plain = Simulated(reserved_bytes=held, reserved_under_pressure=held, retries=0, caches=False)
        return replace(use, simulated=plain), stream.sizes(micro_batch)

    runs = Runs(stream, micro_batch, settings)
    ahead = stream.returns(Schedule.AHEAD)
    free, blocks = runs.charged(ahead)
    reserved = free.peak_reserved_bytes

    def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
        long = COMPILED and len(stream.event_sign) > _LONG
        return at_once(calls) if long else [call() for call in calls]

    @cache
    def possible() -> list[IntArray | None]:
        """Each once, what ran first as itself."""
        found = _possible(stream, use.paces() if use.paces is not None else None)
        known = {_key(ahead): ahead}
        return list({_key(returns): known.get(_key(returns), returns) for returns in found}.values())

    @cache
    def extremes() -> tuple[int, int]:
        again = Runs(stream, micro_batch, settings)

        def peak(returns: IntArray | None, descending_addresses: bool) -> int:
            if returns is ahead and not descending_addresses:
                return reserved
            return again.taken(returns=returns, descending_addresses=descending_addresses).peak_reserved_bytes

        peaks = side_by_side([partial(peak, returns, descending) for returns in possible() for descending in _ORDERS])
        return min(peaks), max(peaks)

    exact = replace(
        use,
        profile=measure(stream, micro_batch, blocks),
        simulated=Simulated(reserved_bytes=reserved, reserved_under_pressure=reserved, retries=0, extremes=extremes),
    )
    if exact.high_bytes <= exact.capacity_bytes or not pressed:
        return exact, blocks
    room = exact.capacity_bytes - sum(term.low for term in exact.terms)
    limited = runs.taken(returns=ahead, capacity=room)

    @cache
    def extremes_under_pressure() -> tuple[int, int]:
        again = Runs(stream, micro_batch, settings)
        others = side_by_side(
            [
                partial(again.taken, returns=returns, descending_addresses=descending_addresses, capacity=room)
                for returns in possible()
                for descending_addresses in _ORDERS
                if returns is not ahead or descending_addresses
            ]
        )
        return _after_retries([limited, *others], stream, room)

    assert exact.simulated is not None
    under_pressure = replace(
        exact.simulated,
        reserved_under_pressure=limited.peak_reserved_bytes if limited.complete else None,
        retries=len(limited.retried_at),
        extremes=extremes_under_pressure if limited.retried_at and limited.complete else extremes,
    )
    return replace(exact, simulated=under_pressure), blocks


_LONG = 40_000
"""Events of a run from which on several are made side by side: a shorter one takes less than two milliseconds."""
_ORDERS = (False, True)
"""Addresses that the driver hands out: ascending, descending."""


def _key(returns: IntArray | None) -> bytes | None:
    return None if returns is None else returns.tobytes()


def _possible(stream: RankStream, paces: Paces | None) -> list[IntArray | None]:
    """When blocks that wait come back, in every schedule that the seconds of the step leave; any of them without."""
    if stream.event_return is None:
        return [None]
    known = {schedule: stream.returns(schedule) for schedule in Schedule}
    if paces is None or stream.history is None:
        return list(known.values())
    queued, others = known.pop(Schedule.QUEUED), [known[schedule] for schedule in LIMITED]
    assert queued is not None
    return [*stream.history.possible(paces, queued, [other for other in others if other is not None])]


def _after_retries(limited: list[Taken], stream: RankStream, room: int) -> tuple[int, int]:
    """What stays reserved by a run that gave cached memory back; `room` is what it found.

    One that does so once, on its way into the second iteration, settles at what it then needs; one that does so in
    every iteration comes back to its peak in each, and that is what the device shows at most. By how much that peak
    misses the room depends on the room itself, which is not known to the byte: by less than what was asked for when
    memory was given back.
    """
    least, most = [], []
    for result in (result for result in limited if result.complete):
        recurs = _recurs(result, stream)
        least.append(room - _least_refused(result) if recurs else result.reserved_at_end)
        most.append(result.peak_reserved_bytes if recurs else result.reserved_at_end)
    return min(least), max(most)


def _least_refused(result: Taken) -> int:
    """Bytes of the smallest segment that was refused at first."""
    refused = np.isin(result.event, result.retried_at) & (result.change > 0)
    return int(result.change[refused].min())


def _recurs(result: Taken, stream: RankStream) -> bool:
    """Whether memory was given back in the first iteration and again in the second."""
    first = int(np.searchsorted(stream.event_segment, stream.step_segments[0], side="right"))
    return {event < first for event in result.retried_at} == {True, False}
