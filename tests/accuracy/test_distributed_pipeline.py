"""Replayed ranks of a pipeline against real ones, which torch.distributed.pipelining runs on gloo; and its losses."""

from functools import cache

import pytest

from gpu_plan.planner.pipeline.schedules import Schedule
from tests.support.ranks.piped.case import EIGHT_RANKS, FOUR_RANKS, TWO_RANKS, PipedCase
from tests.support.ranks.piped.replay import PipedRun, replayed, run_all, stream_of

pytestmark = pytest.mark.slow
WORLDS = {2: TWO_RANKS, 4: FOUR_RANKS, 8: EIGHT_RANKS}


@cache
def runs(world_size: int) -> dict[str, PipedRun]:
    return run_all(WORLDS[world_size], world_size)


@pytest.mark.parametrize("case", [*TWO_RANKS, *FOUR_RANKS, *EIGHT_RANKS], ids=PipedCase.label)
def test_every_figure_of_every_rank_equals(case: PipedCase) -> None:
    real = runs(case.world)[case.label()].figures
    for rank in range(case.stages):
        ours = replayed(stream_of(case, rank), case.micro_batch)
        beside = case.pipelines * case.tensor
        assert _compared(ours, case) in [_compared(one, case) for one in real[rank * beside : (rank + 1) * beside]]


def _compared(figures: dict[str, int], case: PipedCase) -> dict[str, int]:
    """All of them; of tied weights that ranks compute together not the peak of the step, before which the embedding's
    gradient, whole on each rank, is made into its part to be summed with the head's: the plan keeps it whole."""
    tied = case.tensor > 1 and case.architecture == "qwen2"
    return {name: size for name, size in figures.items() if not (tied and name.startswith("step"))}


@pytest.mark.parametrize("case", [*TWO_RANKS, *FOUR_RANKS, *EIGHT_RANKS], ids=PipedCase.label)
def test_losses_are_those_of_one_process(case: PipedCase) -> None:
    run = runs(case.world)[case.label()]
    for losses, expected in zip(run.losses, run.expected, strict=True):
        assert len(losses) == case.micro_batches * case.pipelines
        assert sum(losses) / len(losses) == pytest.approx(expected, abs=1e-2 if case.dtype == "bfloat16" else 1e-5)


def test_the_comparison_can_fail() -> None:
    """What GPipe keeps does not pass for what 1F1B keeps."""
    case = TWO_RANKS[0]
    other = PipedCase(architecture=case.architecture, schedule=Schedule.GPIPE)
    real = runs(2)[case.label()].figures[0]
    assert replayed(stream_of(other, 0), case.micro_batch) != real
