"""The goals one after the other, each proved before the next is looked at.

Goals: bytes offloaded, bytes of them on disk, crossings between devices, share of the fullest device. The first two
do not depend on order and are solved over kinds of items; crossings and fullness over runs in execution order.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import InputError
from planner.search.device_map.arrange import Counts
from planner.search.device_map.items import Item, Run, kinds_of, runs_of
from planner.search.device_map.model import Mode, Model
from planner.search.device_map.problem import DeviceName, Problem
from planner.search.device_map.program import Answer, Program, Terms


@dataclass(slots=True)
class Clock:
    """Seconds left for the whole search."""

    deadline: float

    @classmethod
    def start(cls, seconds: float) -> "Clock":
        return cls(deadline=time.monotonic() + seconds)

    def left(self) -> float:
        return self.deadline - time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the first two goals came to for one mode."""

    mode: Mode
    kinds: tuple[Run, ...]
    counts: Counts
    offloaded: int
    offloaded_bound: float
    disk: int
    disk_bound: float


def scale_of(problem: Problem) -> float:
    """Bytes per unit of the program: the model's total becomes about a million."""
    total = sum(u.weight_bytes + u.buffer_bytes + u.state_bytes + u.headroom_bytes for u in problem.units)
    return max(1.0, total / 2**20)


def store(problem: Problem, items: Sequence[Item], mode: Mode, clock: Clock, slack: int) -> Stored | None:
    """Least offloaded bytes, then least disk bytes; None when nothing fits."""
    kinds = kinds_of(items)
    scale = scale_of(problem)

    def fresh() -> Model:
        return Model(problem=problem, mode=mode, runs=kinds, scale=scale, slack=slack).build()

    model = fresh()
    stores = [device.name for device in mode.storing]
    first = model.program.minimise(model.offloaded(stores), clock.left())
    if first.status == "unknown":
        raise InputError("device map: no map was found within the time limit; give the search more seconds")
    if not first.values:
        return None
    counts = model.counts(first)
    offloaded = _bytes(kinds, counts, stores)
    best, disk_bound = counts, 0.0
    if len(stores) == 2 and _bytes(kinds, counts, ["disk"]):
        model = fresh()
        model.program.at_most(model.offloaded(stores), offloaded / scale)
        second = model.program.minimise(model.offloaded(["disk"]), clock.left())
        if second.values:
            best = model.counts(second)
        disk_bound = _proved(second, _bytes(kinds, best, ["disk"]), scale)
    elif stores == ["disk"]:
        disk_bound = _proved(first, offloaded, scale)
    return Stored(
        mode=mode,
        kinds=kinds,
        counts=best,
        offloaded=offloaded,
        offloaded_bound=_proved(first, offloaded, scale),
        disk=_bytes(kinds, best, ["disk"]),
        disk_bound=disk_bound,
    )


def _bytes(runs: Sequence[Run], counts: Counts, places: Sequence[DeviceName]) -> int:
    return sum(
        run.item.weight_bytes * count.get(place, 0) for run, count in zip(runs, counts, strict=True) for place in places
    )


def _proved(answer: Answer, value: float, scale: float) -> float:
    """The bound in bytes: the value itself where the solver finished, its dual bound otherwise."""
    return value if answer.status == "optimal" else max(0.0, answer.bound * scale)


def fewest_devices(problem: Problem, stored: Stored, clock: Clock, slack: int) -> int:
    """Least running devices of any map as good in the first two goals: a bound on crossings."""
    model = _fixed(problem, stored, stored.kinds, slack)
    used = model.used()
    answer = model.program.minimise(dict.fromkeys(used.values(), 1.0), clock.left())
    if answer.status == "optimal":
        return round(answer.objective)
    return max(1, int(-(-(answer.bound - 1e-6) // 1))) if answer.bound > 0 else 1


def _fixed(problem: Problem, stored: Stored, runs: Sequence[Run], slack: int) -> Model:
    """A model in which the first two goals keep their best values."""
    scale = scale_of(problem)
    model = Model(problem=problem, mode=stored.mode, runs=runs, scale=scale, slack=slack).build()
    stores = [device.name for device in stored.mode.storing]
    if stores:
        model.program.at_most(model.offloaded(stores), stored.offloaded / scale)
        model.program.at_most(model.offloaded(["disk"]), stored.disk / scale)
    return model


@dataclass(slots=True)
class Ordered:
    """Runs in execution order with their crossings as a linear sum."""

    model: Model
    runs: tuple[Run, ...]
    enter: dict[tuple[int, DeviceName], int]
    crossings: Terms
    """Crossings plus one."""

    def entries(self, answer: Answer) -> list[DeviceName | None]:
        """Device on which each run begins."""
        names = [device.name for device in self.model.mode.running]
        return [
            next((name for name in names if answer.integer(self.enter[index, name])), None)
            for index in range(len(self.runs))
        ]


def ordered(problem: Problem, items: Sequence[Item], stored: Stored, slack: int, at_least: int) -> Ordered:
    """The program over runs in execution order, first two goals fixed, at least `at_least` crossings."""
    runs = runs_of(items)
    model = _fixed(problem, stored, runs, slack)
    program, names = model.program, [device.name for device in stored.mode.running]
    enter: dict[tuple[int, DeviceName], int] = {}
    leave: dict[tuple[int, DeviceName], int] = {}
    crossings: Terms = {model.present[index, name]: 1.0 for index in range(len(runs)) for name in names}
    for index, run in enumerate(runs):
        for name in names:
            present = model.present[index, name]
            if run.count == 1:
                enter[index, name] = leave[index, name] = present
                continue
            enter[index, name], leave[index, name] = program.variable(), program.variable()
            program.at_most({enter[index, name]: 1.0, present: -1.0}, 0.0)
            program.at_most({leave[index, name]: 1.0, present: -1.0}, 0.0)
        program.equal({enter[index, name]: 1.0 for name in names}, 1.0)
        if run.count > 1:
            program.equal({leave[index, name]: 1.0 for name in names}, 1.0)
            _one_or_two_ends(program, model, index, names, enter, leave)
    for index in range(len(runs) - 1):
        for name in names:
            stays = program.variable()
            program.at_most({stays: 1.0, leave[index, name]: -1.0}, 0.0)
            program.at_most({stays: 1.0, enter[index + 1, name]: -1.0}, 0.0)
            crossings[stays] = -1.0
    used = model.used()
    program.at_least(crossings, at_least + 1)
    program.at_least({**crossings, **dict.fromkeys(used.values(), -1.0)}, 0.0)
    return Ordered(model=model, runs=runs, enter=enter, crossings=crossings)


def _one_or_two_ends(
    program: Program,
    model: Model,
    index: int,
    names: Sequence[DeviceName],
    enter: dict[tuple[int, DeviceName], int],
    leave: dict[tuple[int, DeviceName], int],
) -> None:
    """A run begins and ends on one device only when no other device holds any of it."""
    for name in names:
        for other in names:
            if other != name:
                ends = {enter[index, name]: 1.0, leave[index, name]: 1.0, model.present[index, other]: 1.0}
                program.at_most(ends, 2.0)


SHARE_STEPS = 10**6
"""The fullest device is found to a millionth of its free bytes."""


def balance(problem: Problem, order: Ordered, crossings: int, seconds: float) -> Answer:
    """Least share of the fullest running device, in `SHARE_STEPS`, with at most `crossings` crossings."""
    program = order.model.program
    share = program.variable(high=SHARE_STEPS)
    program.at_most(order.crossings, crossings + 1)
    for device in order.model.mode.running:
        if device.free_bytes:
            for need in order.model.need[device.name]:
                program.at_most({**need, share: -device.free_bytes / order.model.scale / SHARE_STEPS}, 0.0)
    return program.minimise({share: 1.0}, seconds)
