"""The compiled heap does what the one in Python does, event by event."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.memory.allocator import replay as module
from gpu_plan.planner.memory.allocator.replay import AllocatorResult, AllocatorSettings, replay
from gpu_plan.planner.units import MIB
from tests.unit.memory.test_allocator_properties import Run, runs

needs_kernel = pytest.mark.skipif(not module.COMPILED, reason="built without a compiler")

SETTINGS = st.builds(
    AllocatorSettings,
    expandable_segments=st.booleans(),
    roundup_power2_divisions=st.sampled_from([0, 0, 2, 8]),
    large_segment_size=st.sampled_from([20 * MIB, 12 * MIB]),
    process_limit=st.sampled_from([None, 120 * MIB, 300 * MIB]),
)


@st.composite
def returned(draw: st.DrawFn) -> tuple[Run, np.ndarray | None]:
    """A run, and from which event on what each event frees serves again."""
    run = draw(runs(streams=3, steps=120))
    if draw(st.booleans()):
        return run, None
    later = draw(st.lists(st.integers(0, 40), min_size=len(run.signs), max_size=len(run.signs)))
    at = np.arange(len(run.signs))
    return run, np.where(run.signs < 0, np.minimum(at + later, len(at)), at)


def assert_equal(one: AllocatorResult, other: AllocatorResult) -> None:
    arrays = ("charged", "addresses", "tensors")
    for name in arrays:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    without: dict[str, Any] = dict.fromkeys(arrays)  # Python 3.13 compares fields one by one: arrays have no truth
    assert replace(one, **without) == replace(other, **without)


@needs_kernel
@settings(max_examples=200, deadline=None)
@given(returned(), SETTINGS, st.sampled_from([None, 30 * MIB, 100 * MIB, 301 * MIB]), st.booleans())
def test_equal_event_by_event(
    given_run: tuple[Run, np.ndarray | None], rules: AllocatorSettings, capacity: int | None, descending: bool
) -> None:
    run, returns = given_run
    compiled, plain = (
        run.replay(settings=rules, capacity=capacity, descending_addresses=descending, returns=returns, plain=plain)
        for plain in (False, True)
    )
    assert_equal(compiled, plain)


@settings(max_examples=100, deadline=None)
@given(returned(), SETTINGS, st.sampled_from([None, 30 * MIB, 100 * MIB, 301 * MIB]), st.booleans(), st.booleans())
def test_what_is_taken_is_that_of_the_whole_result(
    given_run: tuple[Run, np.ndarray | None],
    rules: AllocatorSettings,
    capacity: int | None,
    descending: bool,
    plain: bool,
) -> None:
    run, returns = given_run
    played = module.Run(run.signs, run.tensors, run.sizes, run.streams, rules, plain=plain)
    blocks = np.zeros(len(run.sizes), dtype=np.int64)
    taken, whole = played.taken(capacity, descending, returns, blocks), played.result(capacity, descending, returns)
    assert (taken.event.tolist(), taken.change.tolist()) == (whole.driver.event.tolist(), whole.driver.change.tolist())
    assert (taken.peak_reserved_bytes, taken.reserved_at_end) == (whole.peak_reserved_bytes, whole.reserved_at_end)
    assert (taken.retried_at, taken.complete) == (whole.retried_at, whole.oom_at is None)
    assert blocks.tolist() == whole.block_bytes(len(blocks)).tolist()


@needs_kernel
@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_equal_with_thousands_of_free_blocks(grows: bool, seed: int) -> None:
    """Far more than one shelf of a pool holds: shelves are cut in two, emptied and taken away."""
    dice = np.random.default_rng(seed)
    sizes = 512 * dice.integers(1, 2000, 6000)
    freed, again = dice.permutation(4000)[:3000], np.arange(4000, 6000)
    rest = dice.permutation(np.setdiff1d(np.arange(6000), freed))
    tensors = np.concatenate([np.arange(4000), freed, again, rest])
    signs = np.repeat([1, -1, 1, -1], [4000, 3000, 2000, 3000])
    rules = AllocatorSettings(expandable_segments=grows)
    compiled, plain = (replay(signs, tensors, sizes, settings=rules, plain=plain) for plain in (False, True))
    assert_equal(compiled, plain)


@needs_kernel
@pytest.mark.parametrize(("signs", "tensors"), [([1, 1], [0, 0]), ([-1], [0]), ([1, -1, -1], [0, 0, 0])])
def test_events_that_make_no_sense(signs: list[int], tensors: list[int]) -> None:
    said = []
    for plain in (False, True):
        with pytest.raises(ValueError, match="tensor 0") as problem:
            replay(np.asarray(signs), np.asarray(tensors), np.asarray([512]), plain=plain)
        said.append(str(problem.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "bent", [{"garbage_collection_threshold": 0.5, "process_limit": 80 * MIB}, {"max_split_size": 40 * MIB}]
)
def test_what_bends_the_best_fit_is_left_to_python(bent: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CompiledRun", None)
    signs, tensors = np.asarray([1, -1]), np.asarray([0, 0])
    assert replay(signs, tensors, np.asarray([512]), settings=AllocatorSettings(**bent)).peak_allocated_bytes == 512


@settings(max_examples=50, deadline=None)
@given(returned(), st.sampled_from([None, 30 * MIB, 100 * MIB]), st.booleans())
def test_columns_of_calls_say_what_each_call_says(
    given_run: tuple[Run, np.ndarray | None], capacity: int | None, plain: bool
) -> None:
    run, returns = given_run
    result = run.replay(capacity=capacity, returns=returns, plain=plain)
    assert [call.event for call in result.calls] == result.driver.event.tolist()
    assert [call.change for call in result.calls] == result.driver.change.tolist()
