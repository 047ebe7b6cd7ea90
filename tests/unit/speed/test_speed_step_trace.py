"""A step as a Chrome trace, and why devices are not as many times as fast."""

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.speed.model import Collective, OptimizerWork, StepTime, StepWork
from gpu_plan.planner.speed.roofline import RooflineModel
from tests.support.synthetic_trace import Op, trace_of

GATHER = Collective(kind="all_gather", bytes=10**9, count=8, phase="forward", per="micro_step", overlap=True)
REDUCE = Collective(kind="reduce_scatter", bytes=10**9, count=8, phase="backward", per="step", overlap=True)
WAITED = Collective(kind="all_reduce", bytes=10**8, phase="step", per="step", overlap=False)


def step(spec: str = "8xH100", accumulation: int = 3, **more: object) -> StepTime:
    trace = trace_of(Op(flops=1e13, moved=1e6), Op(flops=2e13, moved=1e6, phase=1))
    work = StepWork(
        trace=trace,
        micro_batch=1,
        accumulation_steps=accumulation,
        compute_dtype="bfloat16",
        collectives=(GATHER, REDUCE, WAITED),
        optimizer=OptimizerWork(parameter_bytes_read_written=10**10),
    )
    return RooflineModel().step_time(work, parse_cluster(spec))


def test_a_trace_lasts_as_long_as_the_step_and_holds_every_call() -> None:
    time = step()
    assert time.trace is not None
    events = [event for event in time.trace("a job")["traceEvents"] if event["ph"] == "X"]
    ends = max(event["ts"] + event["dur"] for event in events)
    assert ends / 1e6 == pytest.approx(time.step_seconds, rel=1e-6)
    names = [event["name"] for event in events]
    assert (names.count("all_gather"), names.count("reduce_scatter"), names.count("all_reduce")) == (24, 8, 1)
    by_stream: dict[int, float] = {}
    for event in sorted(events, key=lambda event: event["ts"]):
        assert event["ts"] >= by_stream.get(event["tid"], 0.0) - 1e-2
        by_stream[event["tid"]] = event["ts"] + event["dur"]


def test_what_devices_lose_is_told_with_numbers() -> None:
    time = step()
    assert time.scaling is not None
    said = time.scaling()
    assert said is not None
    worth = 8 * (1 - time.exposed_communication_seconds / time.step_seconds)
    assert said.startswith(f"8 GPUs do the work of {worth:.1f}:")
    assert "all-gathers: 22.4 GiB in a step" in said
    assert "accumulation" not in said, "gathers come in every micro step"
    alone = step("1xH100").scaling
    assert alone is not None
    assert alone() is None
