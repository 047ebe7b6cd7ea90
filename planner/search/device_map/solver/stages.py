"""The goals one after the other, each proved before the next is looked at.

Goals: bytes offloaded, bytes of them on disk, crossings between devices, share of the fullest device. The first two
do not depend on order and are solved over kinds of items; crossings and fullness over runs in execution order.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.search.device_map.items import Item, Run, kinds_of, runs_of
from gpu_plan.planner.search.device_map.placement import SHARE_STEPS
from gpu_plan.planner.search.device_map.problem import DeviceName, Problem
from gpu_plan.planner.search.device_map.solver.arrange import Counts
from gpu_plan.planner.search.device_map.solver.model import Mode, Model
from gpu_plan.planner.search.device_map.solver.program import Answer, Program, Terms
from gpu_plan.planner.units import ceil_div


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
    """What the first two goals came to for one mode, in the problem's steps of bytes."""

    mode: Mode
    kinds: tuple[Run, ...]
    counts: Counts
    offloaded: int
    offloaded_bound: int
    disk: int
    disk_bound: int


def scale_of(problem: Problem) -> float:
    """Bytes per unit of the program: the model's total becomes about a million."""
    total = sum(u.weight_bytes + u.buffer_bytes + u.state_bytes + u.headroom_bytes for u in problem.units)
    return max(1.0, total / 2**20)


def store(
    problem: Problem, items: Sequence[Item], mode: Mode, clock: Clock, slack: int, *, part: float = 0.4
) -> Stored | None:
    """Least offloaded bytes, then least disk bytes, each in `part` of the time left; None when nothing fits."""
    kinds = kinds_of(items)
    stores = [device.name for device in mode.storing]
    model = Model(problem=problem, mode=mode, runs=kinds, scale=scale_of(problem), slack=slack).build()
    model.order_equal_devices()
    first = _fewest_steps(problem, model, stores, clock.left() * part)
    if first.status == "unknown":
        raise InputError("device map: no map was found within the time limit; give the search more seconds")
    if not first.values:
        return None
    counts: Counts = model.counts(first)
    if len(stores) == 2:
        counts = _disk_to_host(problem, kinds, counts)
    offloaded = _steps(problem, kinds, counts, stores)
    disk, bound = _steps(problem, kinds, counts, ["disk"]), 0
    if len(stores) == 2 and disk:
        _limit(problem, model, stores, offloaded)
        second = _fewest_steps(problem, model, ["disk"], clock.left() * part)
        if second.values and second.objective < disk:
            counts = model.counts(second)
        disk = _steps(problem, kinds, counts, ["disk"])
        bound = whole(second.bound)
    elif stores == ["disk"]:
        bound = whole(first.bound)
    return Stored(
        mode=mode,
        kinds=kinds,
        counts=counts,
        offloaded=offloaded,
        offloaded_bound=whole(first.bound),
        disk=disk,
        disk_bound=bound,
    )


def _disk_to_host(problem: Problem, kinds: Sequence[Run], counts: Counts) -> Counts:
    """The same with the largest items moved from disk to host memory, as far as it has room: a first answer."""
    cpu = problem.device("cpu")
    moved = [dict(count) for count in counts]
    if cpu is None:
        return moved
    order = sorted(range(len(kinds)), key=lambda index: -kinds[index].item.stored_bytes)
    for index in order:
        if kinds[index].item.tie is not None:
            continue  # with its partner or not at all
        while moved[index]["disk"]:
            moved[index]["disk"] -= 1
            moved[index]["cpu"] += 1
            if cpu.free_bytes is not None and _host_need(kinds, moved) > cpu.free_bytes:
                moved[index]["disk"] += 1
                moved[index]["cpu"] -= 1
                break
    return moved


def _host_need(kinds: Sequence[Run], counts: Counts) -> int:
    """Host memory of what is stored there, and of the largest item on its way from disk."""
    pairs = list(zip(kinds, counts, strict=True))
    stored = sum(kind.item.stored_bytes * count["cpu"] for kind, count in pairs)
    return stored + max((kind.item.stream_bytes for kind, count in pairs if count["disk"]), default=0)


def _fewest_steps(problem: Problem, model: Model, stores: Sequence[DeviceName], seconds: float) -> Answer:
    """Least bytes that stream from `stores`, in steps: a whole number, which is proved far sooner than bytes."""
    terms = model.offloaded(stores)
    most = sum(run.item.weight_bytes * run.count for run in model.runs) // problem.step_bytes + 1
    steps = model.program.variable(high=most)
    model.program.at_most({**terms, steps: -problem.step_bytes / model.scale}, 0.0)
    return model.program.minimise({steps: 1.0}, seconds)


def _limit(problem: Problem, model: Model, stores: Sequence[DeviceName], steps: int) -> None:
    model.program.at_most(model.offloaded(stores), steps * problem.step_bytes / model.scale)


def _steps(problem: Problem, runs: Sequence[Run], counts: Counts, places: Sequence[DeviceName]) -> int:
    pairs = list(zip(runs, counts, strict=True))
    total = sum(run.item.weight_bytes * count.get(place, 0) for run, count in pairs for place in places)
    return ceil_div(total, problem.step_bytes)


def whole(bound: float) -> int:
    """The least whole number that a bound allows."""
    return max(0, ceil(bound - 1e-6)) if isfinite(bound) else 0


def fewest_devices(problem: Problem, stored: Stored, clock: Clock, slack: int) -> int:
    """Least running devices of any map as good in the first two goals: a bound on crossings."""
    model = _fixed(problem, stored, stored.kinds, slack)
    model.order_equal_devices()
    answer = model.program.minimise(dict.fromkeys(model.used().values(), 1.0), clock.left() * 0.3)
    return max(1, whole(answer.bound))


def in_proportion(problem: Problem, stored: Stored, seconds: float, slack: int) -> Counts | None:
    """Counts as good in the first two goals, every device with the kinds in the proportion that the model has.

    Neighbouring layers come in that proportion, so these counts can be arranged with few crossings.
    """
    model = _fixed(problem, stored, stored.kinds, slack)
    items = sum(kind.count for kind in stored.kinds)
    off: Terms = {}
    for device in stored.mode.running:
        if device.name == stored.mode.main:
            continue
        for index, kind in enumerate(stored.kinds):
            if kind.count < 2:
                continue
            difference: Terms = {model.count[i, device.name]: -float(kind.count) for i in range(len(stored.kinds))}
            difference[model.count[index, device.name]] += items
            away = model.program.variable(high=items * items)
            model.program.at_most({**difference, away: -1.0}, 0.0)
            model.program.at_least({**difference, away: 1.0}, 0.0)
            off[away] = 1.0
    answer = model.program.minimise(off, seconds) if off else None
    return model.counts(answer) if answer is not None and answer.values else None


def kept_on_main(
    problem: Problem, stored: Stored, devices: Sequence[DeviceName], seconds: float, slack: int
) -> Counts | None:
    """Counts in which every device but the main one holds the items that `devices` (by item) gives it; None where
    that is worse in the first two goals, or was not found in time.
    """
    model = _fixed(problem, stored, stored.kinds, slack)
    for index, kind in enumerate(stored.kinds):
        for device in stored.mode.running:
            if device.name != stored.mode.main:
                held = sum(devices[position] == device.name for position in kind.positions)
                model.program.equal({model.count[index, device.name]: 1.0}, held)
    answer = model.program.minimise({}, seconds)
    return model.counts(answer) if answer.values else None


def _fixed(problem: Problem, stored: Stored, runs: Sequence[Run], slack: int) -> Model:
    """A model in which the first two goals keep their best values."""
    mode = stored.mode
    model = Model(problem=problem, mode=mode, runs=runs, scale=scale_of(problem), slack=slack).build()
    if mode.storing:
        _limit(problem, model, [device.name for device in mode.storing], stored.offloaded)
        _limit(problem, model, ["disk"], stored.disk)
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


def balance(order: Ordered, crossings: int, seconds: float) -> tuple[Answer, int]:
    """Least share of the fullest running device, in `SHARE_STEPS`, with at most `crossings` crossings: the answer and
    the variable of the share.
    """
    program = order.model.program
    share = program.variable(high=SHARE_STEPS)
    program.at_most(order.crossings, crossings + 1)
    for device in order.model.mode.running:
        if device.free_bytes:
            for need in order.model.need[device.name]:
                program.at_most({**need, share: -device.free_bytes / order.model.scale / SHARE_STEPS}, 0.0)
    return program.minimise({share: 1.0}, seconds), share


def polish(order: Ordered, share: int, steps: int, seconds: float) -> Answer:
    """Least bytes themselves, offloaded and then on disk, among the maps that are as good in every goal."""
    model = order.model
    model.program.at_most({share: 1.0}, steps)
    stores = [device.name for device in model.mode.storing]
    bytes_off = model.offloaded(stores)
    return model.program.minimise({**bytes_off, **{v: 2 * c for v, c in model.offloaded(["disk"]).items()}}, seconds)
