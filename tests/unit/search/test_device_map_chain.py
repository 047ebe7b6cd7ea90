"""Chains over devices that are alike: as good as the integer program's maps, the same where they are the only ones."""

import importlib
import random
import sys
from dataclasses import replace

import pytest

from gpu_plan.planner.search.device_map import Problem, Tie, Unit, solve
from gpu_plan.planner.search.device_map.devices import devices_of
from gpu_plan.planner.search.device_map.items import items_of
from gpu_plan.planner.search.device_map.solver.chain import Chain, chain_of
from tests.unit.search.test_device_map_enumeration import check

solver = importlib.import_module("gpu_plan.planner.search.device_map.solver.solve")


def of_sizes(sizes: list[int], room: int, gpus: int, **fields: int) -> Problem:
    units = tuple(Unit(name=f"u{index}", weight_bytes=size, **fields) for index, size in enumerate(sizes))
    return Problem(units=units, devices=devices_of({**dict.fromkeys(range(gpus), room), "cpu": None}), granule_bytes=1)


def chain(problem: Problem) -> Chain | None:
    return chain_of(items_of(problem.units), problem.gpus)


def test_the_fewest_stretches_are_as_even_as_can_be() -> None:
    assert chain(of_sizes([4] * 6, 13, 4)) == Chain(crossings=1, steps=924, ends=(3, 6), only=True)
    assert chain(of_sizes([4] * 6, 30, 4)) == Chain(crossings=0, steps=800, ends=(6,), only=True)


def test_a_cut_that_may_be_moved_and_stretches_that_may_be_joined_are_told() -> None:
    assert chain(of_sizes([3, 9, 3, 3, 9, 3], 16, 3)) == Chain(crossings=1, steps=938, ends=(3, 6), only=True)
    moved = chain(of_sizes([4] * 5, 13, 4))
    assert moved is not None
    assert (moved.crossings, moved.steps, moved.only) == (1, 924, False)
    joined = chain(of_sizes([3, 9, 3], 9, 3))
    assert joined == Chain(crossings=2, steps=1000, ends=(1, 2, 3), only=False)


def test_what_each_device_keeps_free_while_it_runs_is_counted_once() -> None:
    assert chain(of_sizes([4] * 4, 12, 2, workspace_bytes=3)) == Chain(crossings=1, steps=917, ends=(2, 4), only=True)
    assert chain(of_sizes([4] * 4, 10, 2, workspace_bytes=3)) is None


def test_ties_unlike_devices_and_too_little_room_are_no_chain() -> None:
    problem = of_sizes([4] * 6, 13, 2)
    tie = (Tie(group="ends", num_bytes=4),)
    ends = {0: replace(problem.units[0], ties=tie), 5: replace(problem.units[5], ties=tie)}
    tied = replace(problem, units=tuple(ends.get(index, unit) for index, unit in enumerate(problem.units)))
    unlike = replace(problem, devices=devices_of({0: 13, 1: 14}))
    assert [chain(one) for one in (tied, unlike, of_sizes([4] * 6, 13, 1), of_sizes([4] * 6, 3, 8))] == [None] * 4


def test_the_only_best_map_is_the_one_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, known = random.Random(7), solver._only_chain
    told = 0
    for _ in range(60):
        ends = [draw.randrange(1, 30) for _ in range(draw.randrange(3))]
        sizes = [*ends, *[draw.choice([8, 13])] * draw.randrange(2, 9), *ends[:1]]
        gpus = draw.randrange(1, 5)
        problem = of_sizes(sizes, int(max(sizes) + sum(sizes) / gpus * draw.uniform(0.6, 1.3)), gpus)
        mine = known(problem, items_of(problem.units))
        if mine is None:
            continue
        told += 1
        with monkeypatch.context() as patched:
            patched.setattr(solver, "_only_chain", lambda problem, items: None)
            other = solve(problem)
        assert list(mine.device_map.items()) == list(other.device_map.items())
        assert (mine.cost, mine.devices, mine.optimal) == (other.cost, other.devices, other.optimal)
    assert told > 20


def test_brute_force_finds_nothing_better() -> None:
    for sizes in ([4, 4, 4, 4, 4, 4], [9, 2, 2, 2, 2, 5], [3, 9, 3, 3, 9, 3]):
        check(of_sizes(sizes, 16, 2))


def test_no_program_is_asked_for_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "_attempt", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    found = solve(of_sizes([4] * 6, 13, 2))
    assert found.optimal
    assert found.cost.key == (0, 0, 1, 0.924)
