"""The best map within a time limit, with how far each goal is proved."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.search.device_map.evaluate import evaluate
from gpu_plan.planner.search.device_map.items import Item, items_of, runs_of
from gpu_plan.planner.search.device_map.placement import SHARE_STEPS, Placement, StageProof
from gpu_plan.planner.search.device_map.problem import Device, DeviceName, Problem
from gpu_plan.planner.search.device_map.solver.arrange import Counts, arranged_map, map_of_counts, stretched_map
from gpu_plan.planner.search.device_map.solver.chain import chain_of
from gpu_plan.planner.search.device_map.solver.model import Mode
from gpu_plan.planner.search.device_map.solver.program import Answer
from gpu_plan.planner.search.device_map.solver.stages import (
    Clock,
    Ordered,
    Stored,
    balance,
    fewest_devices,
    in_proportion,
    kept_on_main,
    ordered,
    polish,
    store,
    whole,
)
from gpu_plan.planner.search.device_map.solver.windows import stretches
from gpu_plan.planner.units import ceil_div, format_bytes

_ATTEMPTS = 4
NOTHING_LOWER = "nothing lower exists"
"""How a goal is proved by a bound that needs no program."""


def solve(problem: Problem, *, limit_seconds: float = 10.0) -> Placement:
    """The map with the least offloaded bytes, then disk bytes, then crossings, then fullest device.

    Each goal is proved, or the placement says which one ran out of time and the bound that was reached. Raises
    InputError when no map fits: the budgets are too small in total, or for one block.
    """
    clock = Clock.start(0.9 * limit_seconds)  # the solver looks at its clock only now and then
    items = items_of(problem.units)
    alone = _only_chain(problem, items)
    if alone is not None:
        return alone
    slack = 0
    for _ in range(_ATTEMPTS):
        found = _attempt(problem, items, clock, slack)
        if found.valid:
            return found
        # The solver lets a row be overfull by its tolerance, a byte or two: take them off and solve again.
        over = max((use.peak_bytes - use.free_bytes for use in found.devices if use.free_bytes is not None), default=0)
        slack += max(over, 1)
    raise InputError("device map: no map was found that fits to the byte; give a few KiB more on the fullest device")


def _only_chain(problem: Problem, items: Sequence[Item]) -> Placement | None:
    """The best map where it is a chain and the only one that is as good: no program is needed, which takes seconds."""
    running = _modes(problem)[0].running
    chain = chain_of(items, running)
    if chain is None or not chain.only:
        return None
    where: dict[str, DeviceName] = {}
    for device, first, end in zip(running, (0, *chain.ends), chain.ends, strict=False):
        where |= {name: device.name for item in items[first:end] for name in item.names}
    found = evaluate(problem, where)
    if not found.valid or found.cost.key != (0, 0, chain.crossings, chain.steps / SHARE_STEPS):
        return None
    goals = ("offloaded bytes", "disk bytes", "boundaries", "fullest device")
    proof = [
        StageProof(goal=goal, value=value, bound=value, method=NOTHING_LOWER)
        for goal, value in zip(goals, found.cost.key, strict=True)
    ]
    return replace(found, proof=tuple(proof))


def _attempt(problem: Problem, items: Sequence[Item], clock: Clock, slack: int) -> Placement:
    best: Placement | None = None
    for stored in _best_stored(problem, items, clock, slack):
        found = _arranged(problem, items, stored, clock, slack)
        if best is None or (not best.valid, best.cost.key) > (not found.valid, found.cost.key):
            best = found
    if best is None:
        raise _nothing_fits(problem, items)
    return best


def _modes(problem: Problem) -> list[Mode]:
    """Nothing offloaded first; then one mode per kind of main device."""
    running = problem.gpus or tuple(device for device in problem.devices if device.kind == "cpu")
    storing = tuple(device for device in problem.devices if device not in running)
    if not running:
        raise InputError("device map: neither a GPU nor the CPU is among the devices, and a disk computes nothing")
    modes = [Mode(main=None, running=running, storing=())]
    if storing:
        kinds: dict[object, int] = {}
        for index, device in enumerate(running):
            kinds.setdefault(replace(device, name=""), index)
        # The main device is the lowest in use; of equal devices the lowest is as good as any.
        modes += [Mode(main=running[at].name, running=running[at:], storing=storing) for at in kinds.values()]
    return modes


def _best_stored(problem: Problem, items: Sequence[Item], clock: Clock, slack: int) -> list[Stored]:
    """The modes that are best in the first two goals."""
    resident, *offloading = _modes(problem)
    found = store(problem, items, resident, clock, slack)
    if found is not None:
        return [found]
    possible: list[Stored] = []
    for mode in offloading:
        if not possible or _at_least(problem, items, mode) <= min(stored.offloaded for stored in possible):
            stored = store(problem, items, mode, clock, slack, part=0.1 if possible else 0.4)
            possible += [stored] if stored is not None else []
    if not possible and problem.gpus:
        possible = _without_gpus(problem, items, clock, slack)
    least = min(((stored.offloaded, stored.disk) for stored in possible), default=None)
    return [stored for stored in possible if (stored.offloaded, stored.disk) == least]


def _at_least(problem: Problem, items: Sequence[Item], mode: Mode) -> int:
    """Steps of bytes that cannot stand on the mode's GPUs, whatever the map."""
    if any(device.free_bytes is None for device in mode.running):
        return 0
    room = sum(device.free_bytes or 0 for device in mode.running)
    return ceil_div(max(0, sum(item.stored_bytes for item in items) - room), problem.step_bytes)


def _without_gpus(problem: Problem, items: Sequence[Item], clock: Clock, slack: int) -> list[Stored]:
    """The CPU runs everything, as accelerate does when its map names no GPU: when no GPU has room for a block."""
    rest = tuple(device for device in problem.devices if device.kind != "gpu")
    if not any(device.kind == "cpu" for device in rest):
        return []
    tried = [store(problem, items, mode, clock, slack) for mode in _modes(replace(problem, devices=rest))]
    steps = ceil_div(sum(item.weight_bytes for item in items), problem.step_bytes)
    return [replace(found, offloaded=steps, offloaded_bound=steps) for found in tried if found][:1]


def _arranged(problem: Problem, items: Sequence[Item], stored: Stored, clock: Clock, slack: int) -> Placement:
    """The best order for one mode: crossings, then the fullest device."""
    floor = crossing_floor(problem, items, stored, clock, slack)
    best = _first_order(problem, items, stored, floor, clock, slack)
    best, bound, method = _fewest_crossings(problem, items, stored, best, floor, clock, slack)
    proof = [
        StageProof(
            goal="offloaded bytes",
            value=stored.offloaded * problem.step_bytes,
            bound=stored.offloaded_bound * problem.step_bytes,
            method=proved_by(stored.offloaded, stored.offloaded_bound),
        ),
        StageProof(
            goal="disk bytes",
            value=stored.disk * problem.step_bytes,
            bound=stored.disk_bound * problem.step_bytes,
            method=proved_by(stored.disk, stored.disk_bound),
        ),
        StageProof(goal="boundaries", value=best.cost.boundaries, bound=bound, method=method),
    ]
    return _balanced(problem, items, stored, best, proof, clock, slack)


def _first_order(
    problem: Problem, items: Sequence[Item], stored: Stored, floor: int, clock: Clock, slack: int
) -> Placement:
    """An order to begin with, from counts alone; often it meets the floor and no program is needed."""

    def judged(counts: Counts) -> Placement:
        where = arranged_map(items, stored.kinds, counts, stored.mode)
        return evaluate(problem, _named(problem, where, stored.mode))

    best = judged(stored.counts)
    if len(runs_of(items)) * len(stored.mode.running) <= _SMALL_PROGRAM:
        return best
    if best.cost.boundaries > floor:
        even = in_proportion(problem, stored, min(0.3, clock.left() * 0.1), slack)
        best = best if even is None else better(best, judged(even))
    if best.cost.boundaries > floor and clock.left() > _LEAST_SECONDS:
        best = _in_stretches(problem, items, stored, best, clock.left() * 0.2, slack)
    return best


_SMALL_PROGRAM = 100
"""Runs times devices up to which the program finds the order faster than a search does."""


def _in_stretches(
    problem: Problem, items: Sequence[Item], stored: Stored, best: Placement, seconds: float, slack: int
) -> Placement:
    """A better order than `best` in which every device but the main one runs one stretch of neighbours."""
    clock = Clock.start(seconds)
    for candidate in stretches(items, stored.mode):
        if candidate.crossings >= best.cost.boundaries or clock.left() <= 0:
            break
        counts = kept_on_main(problem, stored, candidate.devices, min(0.5, clock.left()), slack)
        if counts is not None:
            where = stretched_map(items, stored.kinds, counts, stored.mode, candidate.devices)
            best = better(best, evaluate(problem, _named(problem, where, stored.mode)))
    return best


def _fewest_crossings(
    problem: Problem, items: Sequence[Item], stored: Stored, best: Placement, floor: int, clock: Clock, slack: int
) -> tuple[Placement, int, str]:
    """A better order than `best` or the proof that there is none: the placement, the bound and how it was reached."""
    known = best.cost.boundaries
    if known <= floor and best.valid:
        return best, floor, NOTHING_LOWER
    if best.valid and clock.left() < _LEAST_SECONDS:
        return best, floor, "time limit"
    order = ordered(problem, items, stored, slack, floor)
    if best.valid:
        order.model.program.at_most(order.crossings, known)  # one less than known: `crossings` counts one more
    answer = order.model.program.minimise(order.crossings, clock.left() * 0.7)
    if answer.status == "infeasible":
        return best, known, "integer program"
    if answer.values:
        best = better(best, _placed(problem, items, stored, order, answer))
    bound = min(max(floor, whole(answer.bound - 1)), best.cost.boundaries)
    return best, bound, "integer program" if answer.status == "optimal" else "time limit"


def _placed(problem: Problem, items: Sequence[Item], stored: Stored, order: Ordered, answer: Answer) -> Placement:
    counts = order.model.counts(answer)
    where = map_of_counts(items, order.runs, counts, stored.mode, order.entries(answer))
    return evaluate(problem, _named(problem, where, stored.mode))


def proved_by(value: int, bound: int) -> str:
    """What shows that a goal cannot be better than `value`; "time limit" where nothing does."""
    if value > bound:
        return "time limit"
    return "integer program" if value else NOTHING_LOWER


def _balanced(
    problem: Problem,
    items: Sequence[Item],
    stored: Stored,
    best: Placement,
    proof: list[StageProof],
    clock: Clock,
    slack: int,
) -> Placement:
    value = best.cost.key[-1]
    if clock.left() < _LEAST_SECONDS:
        late = StageProof(goal="fullest device", value=value, bound=0.0, method="time limit")
        return replace(best, proof=(*proof, late))
    order = ordered(problem, items, stored, slack, best.cost.boundaries)
    answer, share = balance(order, best.cost.boundaries, clock.left() * 0.8)
    if answer.values:
        best = better(best, _placed(problem, items, stored, order, answer))
    value = best.cost.key[-1]
    least = whole(answer.bound) / SHARE_STEPS
    method = "integer program" if answer.status == "optimal" else "time limit"
    proof = [*proof, StageProof(goal="fullest device", value=value, bound=min(value, least), method=method)]
    if stored.mode.storing and value <= 1 and best.valid and clock.left() > _LEAST_SECONDS:
        finer = polish(order, share, round(value * SHARE_STEPS), min(_POLISH_SECONDS, clock.left()))
        if finer.values:
            best = better(best, _placed(problem, items, stored, order, finer))
    return replace(best, proof=tuple(proof))


_POLISH_SECONDS = 1.0
_LEAST_SECONDS = 0.5
"""A large program takes about as long to be built: with less left none is begun."""


def better(old: Placement, new: Placement) -> Placement:
    """Of two maps the one that fits, then by the goals in their order; the old one where they tie."""

    def rank(found: Placement) -> tuple[object, ...]:
        return (not found.valid, found.cost.key, found.cost.offloaded_bytes, found.cost.disk_bytes)

    return new if rank(new) < rank(old) else old


def crossing_floor(problem: Problem, items: Sequence[Item], stored: Stored, clock: Clock, slack: int) -> int:
    """No map has fewer crossings: one less than the devices it needs, one more when its ends are tied."""
    devices = fewest_devices(problem, stored, clock, slack)
    ends_tied = items[0].tie is not None and items[0].tie == items[-1].tie and len(items) > 1
    return devices if ends_tied and devices > 1 else devices - 1


def _named(problem: Problem, where: Mapping[str, DeviceName], mode: Mode) -> dict[str, DeviceName]:
    """The map with equal GPUs numbered by first use, and the main GPU named first."""
    places = list(where.values())
    rename: dict[DeviceName, DeviceName] = {}
    kinds: dict[object, list[Device]] = {}
    for device in mode.running:
        kinds.setdefault(replace(device, name=""), []).append(device)
    for group in kinds.values():
        names = [device.name for device in group]
        uses = {name: places.index(name) if name in places else len(places) for name in names}
        by_use = sorted(names, key=lambda name: (name != mode.main, uses[name]))
        rename |= dict(zip(by_use, names, strict=True))
    renamed = {name: rename.get(place, place) for name, place in where.items()}
    main = None if mode.main is None else rename.get(mode.main, mode.main)
    first = next((name for name, place in renamed.items() if place == main), None)
    return renamed if first is None else {first: renamed[first], **renamed}


def _nothing_fits(problem: Problem, items: Sequence[Item]) -> InputError:
    largest = max(items, key=lambda item: item.stored_bytes + item.kept_bytes + item.workspace_bytes)
    size = largest.stored_bytes + largest.kept_bytes + largest.workspace_bytes
    running = problem.gpus or tuple(device for device in problem.devices if device.kind == "cpu")
    room = max((device.free_bytes for device in running if device.free_bytes is not None), default=0)
    if all(device.free_bytes is not None and device.free_bytes < size for device in running):
        return InputError(
            f"device map: {largest.names[0]} needs {format_bytes(size)} on one device and the largest has "
            f"{format_bytes(room)} free: give a device more, or quantise"
        )
    total = sum(item.stored_bytes + item.kept_bytes for item in items)
    free = sum(device.free_bytes or 0 for device in problem.devices)
    return InputError(
        f"device map: the model needs {format_bytes(total)} and room for its largest offloaded block "
        f"({format_bytes(largest.stream_bytes)}), and the devices have {format_bytes(free)} free: give more, or a disk"
    )
