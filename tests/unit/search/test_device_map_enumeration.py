"""The solver against every map there is, on cases small enough to try them all."""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.search.device_map import Device, Placement, Problem, Tie, Unit, evaluate, solve

sizes = st.integers(1, 9)
small = st.integers(0, 3)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to five units, three or four devices; runs of equal layers, ties, caches, workspaces, unequal room."""
    count = draw(st.integers(2, 5))
    layer = draw(sizes)
    alike = draw(st.booleans())
    tied = draw(st.booleans())
    units = []
    for index in range(count):
        weight = layer if alike and 0 < index < count - 1 else draw(sizes)
        ends = index in (0, count - 1)
        units.append(
            Unit(
                name=f"u{index}",
                weight_bytes=10 if tied and ends else weight,
                state_bytes=0 if ends else draw(small) if not alike else layer // 4,
                buffer_bytes=draw(st.sampled_from((0, 0, 1))) if not alike else 0,
                workspace_bytes=draw(st.sampled_from((0, 0, 2))) if not alike else 1,
                stream_bytes=draw(st.sampled_from((None, 1))) if not alike else None,
                ties=(Tie(group="shared", num_bytes=8),) if tied and ends else (),
            )
        )
    gpus = [
        Device(name=index, kind="gpu", free_bytes=draw(st.integers(0, 30))) for index in range(draw(st.integers(0, 2)))
    ]
    cpu = (
        [Device(name="cpu", kind="cpu", free_bytes=draw(st.integers(0, 40)))] if draw(st.booleans()) or not gpus else []
    )
    disk = [Device(name="disk", kind="disk", free_bytes=draw(st.none() | st.integers(0, 40)))]
    return Problem(
        units=tuple(units),
        devices=(*gpus, *cpu, *(disk if draw(st.booleans()) else [])),
        granule_bytes=draw(st.sampled_from((None, 1, 4))),
    )


def every_map(problem: Problem) -> Iterator[Placement]:
    """Every assignment that leaves something to compute on."""
    names = [unit.name for unit in problem.units]
    for places in product([device.name for device in problem.devices], repeat=len(names)):
        if problem.device("cpu") is not None or any(isinstance(place, int) for place in places):
            yield evaluate(problem, dict(zip(names, places, strict=True)))


def check(problem: Problem) -> None:
    possible = [placement.cost.key for placement in every_map(problem) if placement.valid]
    if not possible:
        with pytest.raises(InputError):
            solve(problem)
        return
    found = solve(problem, limit_seconds=240)
    assert found.valid, found.violations
    assert found.cost.key == min(possible)
    assert found.optimal, found.proof


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(problems())
def test_no_map_is_better(problem: Problem) -> None:
    check(problem)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(problems())
def test_no_map_is_better_many(problem: Problem) -> None:
    check(problem)
