"""A rank's replayed stream with LoRA adapters against real DDP and FSDP2 ranks on gloo, as peft wraps the model."""

from functools import cache

import pytest

from gpu_plan.planner.workload.training import Checkpointing, Precision
from tests.support.distributed_reference import RankRun, run_ranks
from tests.support.ranks.case import RankCase
from tests.support.ranks.comparison import differences, measured, replayed
from tests.support.ranks.replay import stream_of


def case(strategy: str, precision: Precision, accumulation: int, checkpointing: Checkpointing) -> RankCase:
    return RankCase(
        architecture="llama-3",
        strategy=strategy,
        precision=precision,
        accumulation=accumulation,
        checkpointing=checkpointing,
        lora_rank=4,
    )


NONE, FULL = Checkpointing.NONE, Checkpointing.FULL
CASES = [
    case("ddp", Precision("fp32"), 1, NONE),
    case("ddp", Precision("fp32"), 2, FULL),
    case("fsdp", Precision("fp32"), 1, NONE),
    case("fsdp", Precision("fp32"), 2, NONE),
    case("fsdp", Precision("fp32"), 1, FULL),
    case("fsdp", Precision("bf16-mixed"), 1, NONE),
]


@cache
def runs() -> dict[str, RankRun]:
    """One launch of two ranks for all cases."""
    return {run.case.label(): run for run in run_ranks(CASES, 2)}


@pytest.mark.parametrize("case", CASES, ids=RankCase.label)
def test_every_figure_equals(case: RankCase) -> None:
    """After wrapping; peak and end of every forward and backward; peak of every step; at rest: two iterations."""
    run = runs()[case.label()]
    assert not run.error, run.error
    real = measured(run.references[0], case)
    assert differences(replayed(stream_of(case, 2), case.micro_batch), real) == {}
    assert real.passes[1].backward_peak > real.wrapped > 100_000


def test_the_comparison_can_fail() -> None:
    """Another rank of the adapters, or trained weights, do not pass for the real ones."""
    wanted = CASES[-1]
    real = measured(runs()[wanted.label()].references[0], wanted)
    for other in (8, 0):
        changed = RankCase(**{**wanted.to_dict(), "precision": wanted.precision, "lora_rank": other})
        assert differences(replayed(stream_of(changed, 2), wanted.micro_batch), real)
