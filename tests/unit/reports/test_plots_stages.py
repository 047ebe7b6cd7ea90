"""Pictures of a pipeline: every rank's memory, and when it computes."""

from dataclasses import replace

import pytest

from gpu_plan.planner.pipeline.schedules import Kind
from gpu_plan.planner.plan.document import Candidate
from gpu_plan.planner.plan.figures import AtPeak, StageFigures
from gpu_plan.planner.units import GIB
from gpu_plan.reports.plots.stages import memory_by_stage, schedule_of, waiting_by_stage
from gpu_plan.reports.plots.style import as_file
from tests.support.plan_example import llama_on_8xh100

STAGES, MICRO_BATCHES = 4, 8


def piped(steps: int = MICRO_BATCHES) -> Candidate:
    """The example's best plan as a pipeline of four even stages: one second forward, two back."""
    best = llama_on_8xh100().plans[0]
    assert best.speed is not None
    stages = tuple(
        StageFigures(
            rank=rank,
            layers=((8 * rank, 8 * rank + 8),),
            embedding=rank == 0,
            head=rank == STAGES - 1,
            parameters=1,
            in_flight=STAGES - rank,
            peak_allocated_bytes=(10 - rank) * GIB,
            phase_of_peak="backward",
            at_peak=AtPeak(parameters=GIB, activations=(9 - rank) * GIB),
            busy_seconds=3.0 * steps,
        )
        for rank in range(STAGES)
    )
    choice = replace(
        best.strategy,
        name="ddp_pp",
        data_parallel=2,
        pipeline_parallel=STAGES,
        schedule="1f1b",
        gradient_accumulation_steps=steps,
    )
    speed = replace(best.speed, parts={**best.speed.parts, "forward": 1.0, "backward": 2.0, "recompute": 0.0})
    return replace(best, strategy=choice, stages=stages, speed=speed)


def test_bars_are_as_long_as_each_ranks_peak() -> None:
    (axes,) = memory_by_stage(piped()).axes
    by_row: dict[int, float] = {}
    for bar in axes.patches:
        row = round(bar.get_y() + bar.get_height() / 2)
        by_row[row] = by_row.get(row, 0.0) + bar.get_width()
    assert by_row == {rank: pytest.approx(10 - rank) for rank in range(STAGES)}


def test_the_bubble_is_that_of_1f1b() -> None:
    """Of m micro batches through p even stages, ranks wait (p - 1) / (m + p - 1) of the step."""
    timeline = schedule_of(piped())
    assert timeline is not None
    assert timeline.seconds == pytest.approx(3.0 * (MICRO_BATCHES + STAGES - 1))
    assert timeline.bubble == pytest.approx((STAGES - 1) / (MICRO_BATCHES + STAGES - 1))
    forwards = [span for span in timeline.spans if span.action.kind is Kind.FORWARD]
    assert len(forwards) == STAGES * MICRO_BATCHES


@pytest.mark.parametrize("width", [9.6, 4.3])
def test_every_pipeline_can_be_drawn(width: float) -> None:
    long = piped(steps=1024)
    assert schedule_of(long) is None, "too many to tell apart"
    for figure in (
        memory_by_stage(piped(), width, titled=True),
        waiting_by_stage(piped(), width),
        waiting_by_stage(long, width),
    ):
        assert as_file(figure, "svg").startswith(b"<?xml")
