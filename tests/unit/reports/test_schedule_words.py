"""What is said of a pipeline's schedule."""

from dataclasses import replace

import pytest

from gpu_plan.reports.plan.stages import schedule_words
from tests.unit.reports.test_plots_stages import piped


def test_stages_are_counted_over_ranks() -> None:
    candidate = piped()
    two_each = replace(candidate, strategy=replace(candidate.strategy, virtual_stages=2, schedule="interleaved"))
    assert schedule_words(candidate)[1] == "8 micro batches through 4 stages"
    assert schedule_words(two_each)[:2] == ["schedule interleaved", "8 micro batches through 8 stages, 2 on each rank"]


@pytest.mark.parametrize("degree", [1, 4])
def test_where_there_is_one_stage_nothing_is_said(degree: int) -> None:
    """Megatron's ranks are listed as stages, whatever the degree."""
    candidate = piped()
    alone = replace(candidate, strategy=replace(candidate.strategy, pipeline_parallel=degree))
    assert bool(schedule_words(alone)) == (degree > 1)
