"""`--timeline` of every strategy: the last event ends with the step, and no lane does two things at once."""

from collections import defaultdict
from typing import Any

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.pipeline.chrome import Ending, pipeline_trace
from gpu_plan.planner.pipeline.schedules import Kind, Schedule, actions
from gpu_plan.planner.pipeline.timeline import run
from gpu_plan.planner.speed.model import StepWork
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from tests.support.rank_contexts import small_context
from tests.support.synthetic_trace import Op, trace_of
from tests.support.tiny_trace import tiny_trace

TRACE = tiny_trace([(2**20, 2**16)] * 4, element_bytes=4)
COMPUTED = trace_of(Op(flops=1e10, moved=1e6), Op(flops=2e10, moved=1e6, phase=1))
CASES = [
    (name, offload, accumulation)
    for name, strategy in STRATEGIES.items()
    if not strategy.traits.pipeline_parallel
    for offload in strategy.traits.offloads
    for accumulation in (1, 3)
]
RANKS = 16


def held(trace: dict[str, Any], seconds: float) -> set[str]:
    """Names of the events, which fill their lanes one after the other and end with the step."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    ends: dict[tuple[int, int], float] = defaultdict(float)
    for event in sorted(events, key=lambda event: event["ts"]):
        lane = event["pid"], event["tid"]
        assert event["ts"] >= ends[lane] - 1e-2
        ends[lane] = event["ts"] + event["dur"]
    assert max(ends.values()) / 1e6 == pytest.approx(seconds, rel=1e-5)
    return {event["name"] for event in events}


@pytest.mark.parametrize(("name", "offload", "accumulation"), CASES)
def test_a_step_fills_its_lanes(name: str, offload: Offload, accumulation: int) -> None:
    strategy = STRATEGIES[name]
    ranks = 1 if strategy.traits.one_device else RANKS
    context = small_context(
        TRACE,
        world_size=ranks,
        nodes=1 if ranks == 1 else 2,
        replicate=2 if strategy.traits.replicates else 1,
        offload=offload,
        accumulation_steps=accumulation,
        capability=(9, 0),
    )
    if strategy.refuses(context) is not None:
        pytest.skip("needs degrees of its own")
    plan = strategy.rank(context)
    work = StepWork(
        trace=COMPUTED,
        micro_batch=1,
        accumulation_steps=accumulation,
        compute_dtype="bfloat16",
        collectives=plan.collectives,
        optimizer=plan.optimizer_work,
    )
    time = RooflineModel().step_time(work, parse_cluster("1xH100" if ranks == 1 else "2x8xH100"))
    assert time.trace is not None
    names = held(time.trace(name), time.step_seconds)
    assert {"forward", "backward"} <= names
    assert {str(one.kind) for one in plan.collectives if one.bytes} <= names | {"transfers"}


@pytest.mark.parametrize(("schedule", "local"), [(Schedule("1f1b"), 1), (Schedule("interleaved"), 2)])
def test_a_pipeline_fills_its_ranks(schedule: Schedule, local: int) -> None:
    ranks, batches = 4, 8
    orders = [actions(schedule, rank, ranks, local, batches) for rank in range(ranks)]
    seconds = {(kind, stage): 0.01 * (1 + stage) for kind in Kind for stage in range(ranks * local)}
    timeline = run(orders, seconds, 0.001)
    endings = [Ending(0.02, 0.01), Ending(0.0, 0.03), Ending(0.03, 0.0), Ending(0.01, 0.02)]
    names = held(pipeline_trace(timeline, endings, "a job"), timeline.seconds + 0.03)
    assert {"forward 0, stage 0", f"backward {batches - 1}, stage {ranks * local - 1}", "optimizer"} <= names
