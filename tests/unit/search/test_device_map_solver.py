"""The steps of the search for a device map, each by itself: bounds, first answers, what is judged better. No torch."""

import importlib
from dataclasses import replace

import pytest

from gpu_plan.planner.search.device_map import Placement, Problem, Tie, Unit, evaluate, solve
from gpu_plan.planner.search.device_map.devices import devices_of
from gpu_plan.planner.search.device_map.items import items_of
from gpu_plan.planner.search.device_map.solver.model import Mode
from gpu_plan.planner.search.device_map.solver.program import Answer, Program
from gpu_plan.planner.search.device_map.solver.solve import better, proved_by
from gpu_plan.planner.search.device_map.solver.stages import Clock, fewest_devices, store, whole
from gpu_plan.planner.search.device_map.solver.windows import stretches
from tests.unit.search.test_device_map_enumeration import check

solver = importlib.import_module("gpu_plan.planner.search.device_map.solver.solve")


def of_sizes(*sizes: int, room: dict[int | str, int | str | None], **fields: int) -> Problem:
    units = tuple(Unit(name=f"u{index}", weight_bytes=size, **fields) for index, size in enumerate(sizes))
    return Problem(units=units, devices=devices_of(room), granule_bytes=1)


def goal(found: Placement, name: str) -> tuple[float, float, str]:
    proof = next(proof for proof in found.proof if proof.goal == name)
    return proof.value, proof.bound, proof.method


def test_a_bound_allows_the_next_whole_number_above_it() -> None:
    assert [whole(bound) for bound in (2.2, 2.9, 3.0, 3.0000001, -4.0, float("-inf"))] == [3, 3, 3, 3, 0, 0]


def test_crossings_have_their_floor_from_the_devices_that_are_needed() -> None:
    assert goal(solve(of_sizes(6, 6, room={0: 8, 1: 8})), "boundaries") == (1, 1, "nothing lower exists")
    assert goal(solve(of_sizes(6, 6, 6, room={0: 8, 1: 8, 2: 8})), "boundaries") == (2, 2, "nothing lower exists")


def test_tied_ends_add_the_way_back_to_the_floor() -> None:
    tie = (Tie(group="ends", num_bytes=6),)
    units = (
        Unit(name="first", weight_bytes=6, ties=tie),
        Unit(name="middle", weight_bytes=6),
        Unit(name="last", weight_bytes=6, ties=tie),
    )
    found = solve(Problem(units=units, devices=devices_of({0: 8, 1: 8}), granule_bytes=1))
    assert found.device_map["first"] == found.device_map["last"] != found.device_map["middle"]
    assert goal(found, "boundaries") == (2, 2, "nothing lower exists")


def test_only_a_bound_that_was_reached_proves() -> None:
    assert proved_by(3, 2) == "time limit"
    assert proved_by(3, 3) == "integer program"
    assert proved_by(0, 0) == "nothing lower exists"


def test_a_map_that_fits_is_better_than_a_cheaper_one_that_does_not() -> None:
    problem = of_sizes(6, 6, room={0: 8, 1: 8})
    fits, cheaper = evaluate(problem, {"u0": 0, "u1": 1}), evaluate(problem, {"": 0})
    assert cheaper.cost.boundaries < fits.cost.boundaries
    assert better(cheaper, fits) is fits
    assert better(fits, cheaper) is fits


def test_what_the_solver_gave_too_much_is_taken_off_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows may be overfull by a byte or two, its tolerance: such a map is never the answer."""
    problem = of_sizes(6, 6, room={0: 11, 1: 8})
    asked: list[int] = []

    def attempt(problem: Problem, items: object, clock: object, slack: int) -> Placement:
        asked.append(slack)
        return evaluate(problem, {"": 0} if len(asked) == 1 else {"u0": 0, "u1": 1})

    monkeypatch.setattr(solver, "_attempt", attempt)
    assert solver.solve(problem).valid
    assert asked == [0, 1]


def test_the_largest_in_ram_is_not_the_fullest_ram() -> None:
    """Two of 5 fill host memory better than the one of 6, which comes first."""
    problem = of_sizes(6, 5, 5, 9, room={0: 10, "cpu": 11, "disk": None}, stream_bytes=1)
    gpu, cpu, disk = problem.devices
    mode = Mode(main=0, running=(gpu,), storing=(cpu, disk))
    stored = store(problem, items_of(problem.units), mode, Clock.start(240), 0)
    assert stored is not None
    assert (stored.offloaded, stored.disk, stored.disk_bound) == (16, 6, 6)


def test_what_comes_from_disk_passes_through_ram() -> None:
    check(of_sizes(5, 5, 5, 5, room={0: 10, "cpu": 10, "disk": None}))


def test_a_model_needs_a_device_even_where_no_time_was_left_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = of_sizes(6, 6, room={0: 8, 1: 8})
    mode = Mode(main=None, running=problem.devices, storing=())
    stored = store(problem, items_of(problem.units), mode, Clock.start(240), 0)
    assert stored is not None
    assert fewest_devices(problem, stored, Clock.start(240), 0) == 2
    monkeypatch.setattr(Program, "minimise", lambda *_: Answer(status="unknown"))
    assert fewest_devices(problem, stored, Clock.start(240), 0) == 1


def test_a_stretch_leaves_room_for_what_its_items_work_with() -> None:
    problem = of_sizes(5, 5, 5, room={0: 10, 1: 10, 2: 10}, workspace_bytes=3)
    mode = Mode(main=None, running=problem.devices, storing=())
    found = stretches(items_of(problem.units), mode)
    assert {candidate.crossings for candidate in found} == {2}
    wider = tuple(replace(device, free_bytes=13) for device in problem.devices)
    mode = Mode(main=None, running=wider, storing=())
    assert min(candidate.crossings for candidate in stretches(items_of(problem.units), mode)) == 1
