"""How long computation waits for transfers that run beside it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.model import HOST_KINDS, Collective, Per, Phase
from gpu_plan.planner.speed.streams.schedule import Slice, Stream, Task, phase_seconds

_PACKING = 2
"""A bucket is read and written once more: gathered weights are copied out into parameters (torch
_fsdp_collectives.py: foreach_all_gather_copy_out), gradients copied in (foreach_reduce_scatter_copy_in; reducer.cpp:
mark_variable_ready_dense)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transfer:
    """One `Collective` with the seconds of all its calls in one micro step (or one step), slow, expected, fast.

    Each is itself alone: equal ones are made one, with more calls.
    """

    collective: Collective
    seconds: tuple[float, float, float]
    hidden: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Of those, what runs beside blocks of attention before it is waited for (`Collective.beside`)."""

    def one_call(self, bound: int) -> float:
        """Seconds of one of its calls."""
        return self.seconds[bound] / max(1, self.collective.count)

    @property
    def in_device(self) -> bool:
        """Whether it moves data between devices."""
        return self.collective.kind not in HOST_KINDS

    @property
    def is_ahead(self) -> bool:
        """Whether the computation waits for what it brings; otherwise it sends what the computation has made."""
        return self.collective.kind in ("all_gather", "broadcast", "host_to_device", "disk_to_host")

    @property
    def stream(self) -> Stream:
        """Where it runs: communicators and copy engines each do one thing at a time."""
        if not self.in_device:
            return "to device" if self.is_ahead else "to host"
        return "between nodes" if self.collective.across_nodes else "collectives"


def together(collectives: Iterable[Collective]) -> list[Collective]:
    """Equal collectives as one with more calls, in the order of the first: layers are alike, as is what they send."""
    return [replace(one, count=one.count * times) if times > 1 else one for one, times in Counter(collectives).items()]


def at_bounds(transfers: list[Transfer], links: int, host: int) -> list[Transfer]:
    """The same transfers where links between devices and the host are not equally fast."""
    if links == host:
        return transfers
    found = []
    for transfer in transfers:
        bound = links if transfer.in_device else host
        seconds, hidden = transfer.seconds[bound], transfer.hidden[bound]
        found.append(
            Transfer(collective=transfer.collective, seconds=(seconds,) * 3, hidden=(hidden,) * 3)  # whatever the bound
        )
    return found


_WITHIN_LAYERS = ("tensor", "context")
"""Axes whose ranks send each other something in the middle of a layer, all over a phase."""


def beside_host(transfers: list[Transfer], forward: float, backward: float, bound: int) -> list[Transfer]:
    """The same transfers where the device stands idle for so many seconds of a phase, its host being slower.

    Waiting for ranks that share a layer is a wait of one stream for another, in which the host takes no part (torch
    ProcessGroupNCCL.cpp: WorkNCCL::synchronizeStream): it issues on meanwhile, and is no more ahead than it was.
    """
    idle = {"forward": forward, "backward": backward}
    if not max(idle.values()):
        return transfers
    waited = dict.fromkeys(idle, 0.0)
    for one in transfers:
        if _waits_within_layers(one):
            waited[one.collective.phase] += one.seconds[bound] - one.hidden[bound]
    return [
        replace(one, hidden=_more_hidden(one, bound, idle[one.collective.phase] / waited[one.collective.phase]))
        if _waits_within_layers(one) and waited[one.collective.phase]
        else one
        for one in transfers
    ]


def _waits_within_layers(transfer: Transfer) -> bool:
    collective = transfer.collective
    return collective.axis in _WITHIN_LAYERS and collective.phase != "step" and not collective.overlap


def _more_hidden(transfer: Transfer, bound: int, share: float) -> tuple[float, float, float]:
    """What is hidden, with a share of the rest at one bound."""
    found = list(transfer.hidden)
    found[bound] += min(1.0, share) * (transfer.seconds[bound] - found[bound])
    return found[0], found[1], found[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What transfers take from the computation that they run beside, under one of the bounds."""

    bound: int
    memory_rate: float
    """Bytes per second of the device's memory."""
    compute_share: float
    """Share of the multiprocessors that a collective occupies while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseWork:
    """One phase of a micro step: slices with what runs beside them, and what is waited for by all."""

    slices: tuple[Slice, ...]
    waited: tuple[Task, ...]

    @property
    def seconds(self) -> float:
        """Of everything."""
        return phase_seconds(self.slices) + sum(task.seconds for task in self.waited)


def exposed_seconds(
    transfers: list[Transfer], phase: Phase, pers: tuple[Per, ...], compute: float, beside: Beside
) -> float:
    """Seconds by which the transfers of one phase prolong its computation of `compute` seconds.

    Those that do not overlap are waited for. While a collective runs beside computation it occupies multiprocessors,
    and what it packs passes through the device's memory once more.
    """
    ours = [t for t in transfers if t.collective.phase == phase and t.collective.per in pers]
    if not ours:
        return 0.0
    prolonged = phase_work(ours, phase, pers, compute, beside).seconds - compute
    # What slows the computation lengthens the time that transfers hide behind: never above running one by one.
    return min(max(0.0, prolonged), sum(t.seconds[beside.bound] for t in ours))


def phase_work(
    transfers: list[Transfer], phase: Phase, pers: tuple[Per, ...], compute: float, beside: Beside
) -> PhaseWork:
    """A phase as it is scheduled, in as many slices as there are units that are gathered or reduced."""
    bound = beside.bound
    ours = [t for t in transfers if t.collective.phase == phase and t.collective.per in pers and t.seconds[bound] > 0]
    waited = tuple(
        Task(t.stream, t.seconds[bound] - t.hidden[bound], t.collective.kind) for t in ours if not t.collective.overlap
    )
    overlapped = [t for t in ours if t.collective.overlap]
    if not overlapped:
        return PhaseWork(slices=(Slice(compute),), waited=waited)
    ahead = _in_order([t for t in overlapped if t.is_ahead], phase, bound)
    behind = _in_order([t for t in overlapped if not t.is_ahead], phase, bound)
    edge = max((t.one_call(bound) for t in (ahead if phase == "forward" else behind) if t.in_device), default=0.0)
    total = compute + _lost(overlapped, compute, edge, beside)
    if phase == "step":
        # Nothing of an optimizer's step is known to be in pieces: copies run beside all of it.
        tasks = tuple(Task(t.stream, t.seconds[bound], t.collective.kind) for t in overlapped)
        return PhaseWork(slices=(Slice(0.0, after=_independent(tasks)), Slice(total)), waited=waited)
    return PhaseWork(slices=_slices(ahead, behind, total, bound), waited=waited)


def _independent(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """One task for each stream: streams do not wait for each other."""
    sums: dict[Stream, float] = {}
    for task in tasks:
        sums[task.stream] = sums.get(task.stream, 0.0) + task.seconds
    longest = max(sums, key=sums.__getitem__)
    return (Task(longest, sums[longest], "transfers"),)


def _lost(overlapped: list[Transfer], compute: float, edge: float, beside: Beside) -> float:
    """Seconds that collectives take from the computation that they run beside: all but the one at the phase's edge."""
    between = [t for t in overlapped if t.in_device]
    hidden = min(max(0.0, sum(t.seconds[beside.bound] for t in between) - edge), compute)
    packed = sum(_packed_bytes(t) for t in between) / beside.memory_rate
    return hidden * beside.compute_share + min(hidden, packed)


def _in_order(transfers: list[Transfer], phase: Phase, bound: int) -> list[Transfer]:
    """Single streams of calls in the order of the phase: that with the embeddings, as a rule the largest, is the first
    to be used forward, and the last to get a gradient."""
    if len(transfers) < 2:
        return transfers
    longest = max(transfers, key=lambda t: t.one_call(bound))
    others = [t for t in transfers if t is not longest]
    return [longest, *others] if phase == "forward" else [*others, longest]


def _slices(ahead: list[Transfer], behind: list[Transfer], compute: float, bound: int) -> tuple[Slice, ...]:
    """The computation, cut where units end: as long as their weights are large, since products are."""
    lanes_ahead, lanes_behind = _lanes(ahead), _lanes(behind)
    units = max((lanes_ahead or lanes_behind).values(), key=len)
    per_byte = compute / sum(unit.collective.bytes for unit in units)
    before = [_spread(lane, len(units)) for lane in lanes_ahead.values()]
    after = [_spread(lane, len(units)) for lane in lanes_behind.values()]
    made: dict[object, Slice] = {}
    slices = []
    for key in zip(units, *before, *after, strict=True):
        # Equal units are one object: the schedule runs a row of them once.
        found = made.get(key)
        if found is None:
            waits, sends = key[1 : 1 + len(before)], key[1 + len(before) :]
            found = made[key] = Slice(
                per_byte * key[0].collective.bytes,
                tuple(_task(call, bound) for calls in waits for call in calls),
                tuple(_task(call, bound) for calls in sends for call in calls),
            )
        slices.append(found)
    return tuple(slices)


_LANES: dict[Stream, int] = {"to device": 0, "collectives": 1, "between nodes": 2, "to host": 3}
"""A unit comes from the host before it is gathered, and is summed before it goes back."""


def _lanes(transfers: list[Transfer]) -> dict[Stream, list[Transfer]]:
    """Every call of each stream, in its order."""
    found: dict[Stream, list[Transfer]] = {}
    for transfer in sorted(transfers, key=lambda t: _LANES[t.stream]):
        found.setdefault(transfer.stream, []).extend([transfer] * max(1, transfer.collective.count))
    return found


def _spread(calls: list[Transfer], count: int) -> list[tuple[Transfer, ...]]:
    """A stream's calls over slices: one each where there are as many, else evenly, the last with the last slice."""
    if len(calls) == count:
        one = {id(call): (call,) for call in calls}
        return [one[id(call)] for call in calls]
    return [tuple(calls[a:b]) for a, b in pairwise(at * len(calls) // count for at in range(count + 1))]


def _task(transfer: Transfer, bound: int) -> Task:
    return Task(transfer.stream, transfer.one_call(bound), transfer.collective.kind)


def _packed_bytes(transfer: Transfer) -> float:
    collective = transfer.collective
    return float(_PACKING * collective.bytes * collective.count) if transfer.seconds[1] > 0 else 0.0
