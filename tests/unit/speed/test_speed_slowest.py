"""The slowest of several devices, which the others wait for: by value, by order, and where nothing waits."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.hardware.catalog import find_gpu
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.speed.chips.slowest import slowest_device
from gpu_plan.planner.speed.host import Issuing, host_operator_seconds, older_interpreter
from gpu_plan.planner.speed.model import Collective, OptimizerWork, StepWork
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.events import StepTrace
from tests.support.synthetic_trace import Op, trace_of

NOTHING = OptimizerWork(parameter_bytes_read_written=0)
PRODUCTS = trace_of(Op(flops=1e15), Op(flops=1e15, phase=1))
COPIES = trace_of(Op(name="add", moved=1e12), Op(name="add", moved=1e12, phase=1))


@pytest.mark.parametrize(
    ("count", "fast", "expected", "slow"),
    [(1, 0.979, 1.0, 1.020), (2, 0.991, 1.009, 1.025), (8, 1.011, 1.022, 1.036), (512, 1.041, 1.042, 1.043)],
)
def test_of_so_many_devices_the_slowest_is_so_much_slower_than_the_median_one(
    count: int, fast: float, expected: float, slow: float
) -> None:
    assert slowest_device(find_gpu("A100"), count).bounds == pytest.approx((slow, expected, fast), abs=6e-4)


@given(st.integers(1, 2**14))
def test_more_devices_never_have_a_faster_slowest_and_none_is_slower_than_the_slowest(count: int) -> None:
    gpu = find_gpu("H100")
    one, more = slowest_device(gpu, count), slowest_device(gpu, count + 1)
    assert one.slow >= one.expected >= one.fast
    assert all(later >= sooner for sooner, later in zip(one.bounds, more.bounds, strict=True))
    assert more.slow <= 1.043


@pytest.mark.parametrize("name", ["RTX4090", "RTX3090", "L40"])
def test_cards_that_do_not_draw_what_their_board_may_take_do_not_differ(name: str) -> None:
    assert slowest_device(find_gpu(name), 8).bounds == (1.0, 1.0, 1.0)


def _seconds(spec: str, trace: StepTrace, **more: object) -> float:
    work = StepWork(trace=trace, micro_batch=1, compute_dtype="bfloat16", optimizer=NOTHING)
    return RooflineModel().step_time(replace(work, **more), parse_cluster(spec)).step_seconds  # type: ignore[arg-type]


def test_products_of_a_training_step_wait_for_the_slowest_and_copies_do_not() -> None:
    assert _seconds("8xA100", PRODUCTS) / _seconds("1xA100", PRODUCTS) == pytest.approx(1.0217, rel=1e-3)
    assert _seconds("8xA100", COPIES) == pytest.approx(_seconds("1xA100", COPIES))


def test_copies_of_a_model_that_answer_by_themselves_do_not_wait_for_each_other() -> None:
    forward = trace_of(Op(flops=1e15))
    sum_of_four = Collective(
        kind="all_reduce", bytes=1, phase="forward", per="micro_step", overlap=False, ranks=4, axis="tensor"
    )
    alone, together = _seconds("8xA100", forward), _seconds("8xA100", forward, collectives=(sum_of_four,))
    assert alone == pytest.approx(_seconds("1xA100", forward))
    assert together / alone == pytest.approx(1.0165, rel=1e-3)


def test_what_the_devices_differ_by_is_told_beside_the_figures() -> None:
    work = StepWork(trace=PRODUCTS, micro_batch=1, compute_dtype="bfloat16", optimizer=NOTHING)
    notes = RooflineModel().step_time(work, parse_cluster("8x8xA100")).notes
    assert "products wait for the slowest of 64 devices: 3.8% slower than the median one" in notes


def test_an_older_interpreter_lengthens_what_a_host_issues_at_most_by_its_share() -> None:
    assert older_interpreter() == pytest.approx(1.075)
    issue = host_operator_seconds(find_gpu("A100"), Issuing.NO_GRAD)
    assert issue.slow / issue.expected > 1.25 * 1.075
