"""One device: states, gradients and optimizer steps on a step made by hand."""

import pytest

from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.workload.training import Optimizer
from tests.support.live_bytes import at_load, at_rest, peak
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import ACTIVATION, tiny_trace

SHAPES = [(100, 4), (50, 4), (25, 4)]
NUMEL = 700
BATCH = 64
TRACE = tiny_trace(SHAPES, element_bytes=4)


def test_parameters_then_two_moments_for_each() -> None:
    stream = Single().rank(small_context(TRACE, world_size=1)).stream
    assert at_load(stream) == 4 * NUMEL
    assert at_rest(stream) == [12 * NUMEL + BATCH] * 2


def test_frozen_parameters_have_neither_gradient_nor_state() -> None:
    trace = tiny_trace(SHAPES, element_bytes=4, frozen=[0])
    stream = Single().rank(small_context(trace, world_size=1)).stream
    assert at_rest(stream) == [4 * NUMEL + 8 * (NUMEL - 400) + BATCH] * 2


@pytest.mark.parametrize(
    ("optimizer", "kept", "temporary"),
    [
        (Optimizer("adamw"), 8 * NUMEL, 4 * NUMEL),  # one square root for the whole list
        (Optimizer("adamw-forloop"), 8 * NUMEL, 4 * (400 + 200 + 200)),  # the first's last beside the second's two
        (Optimizer("sgd"), 0, 0),
    ],
)
def test_what_a_step_keeps_and_takes(optimizer: Optimizer, kept: int, temporary: int) -> None:
    stream = Single().rank(small_context(TRACE, world_size=1, optimizer=optimizer)).stream
    step = stream.step_segments[1]
    standing = 4 * NUMEL + BATCH + kept
    assert at_rest(stream)[1] == standing
    assert peak(stream, step) == standing + 4 * NUMEL + temporary


def test_accumulated_gradients_stand_through_the_next_micro_step() -> None:
    once, twice = (
        Single().rank(small_context(TRACE, world_size=1, accumulation_steps=steps)).stream for steps in (1, 2)
    )
    assert at_rest(once) == at_rest(twice)
    # The sum of before stands whole; each new gradient only until it is added.
    assert peak(twice, 2) == 8 * NUMEL + BATCH + 3 * ACTIVATION
    assert peak(twice, 2, backward=True) == 8 * NUMEL + BATCH + 3 * ACTIVATION + 4 * 100


def test_more_than_one_device_is_refused() -> None:
    assert "more than one" in str(Single().refuses(small_context(TRACE)))
    assert Single().refuses(small_context(TRACE, world_size=1)) is None
