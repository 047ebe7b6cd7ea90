"""Ranks of families that no other list has, replayed against real ones on gloo."""

from functools import cache

import pytest

from gpu_plan.planner.strategy.fsdp2.units import shared_apart
from tests.support.distributed_reference import RankRun, run_ranks
from tests.support.ranks.case import RankCase
from tests.support.ranks.comparison import differences, measured, replayed
from tests.support.ranks.further_cases import REFUSED, TWO_RANKS
from tests.support.ranks.replay import stream_of, trace_of
from tests.support.ranks.zero_replay import streams_of

pytestmark = pytest.mark.slow
NAMED = {
    # Layer norms keep their statistics in 16 bits on the CPU, in 32 on CUDA, whose kernels the trace follows.
    "stablelm": 1600,
    "xlm-roberta": 1920,
    # Rotary frequencies stand in fp32 until the first forward casts buffers (_runtime_utils.py: _root_pre_forward).
    "olmo, fsdp1": 64,
    # Its layers keep their last state, from which each further pass begins; the replay repeats the first.
    "recurrentgemma": 1024,
}


@cache
def runs() -> dict[str, RankRun]:
    """All runs of one launch, by case."""
    return {run.case.label(): run for run in run_ranks((*TWO_RANKS, *REFUSED), 2)}


def apart(run: RankRun) -> dict[str, int]:
    """Figures that differ, of the rank that is furthest apart."""
    case = run.case
    streams = streams_of(case, 2) if case.strategy.startswith("zero") else [stream_of(case, 2)]
    found = [
        differences(replayed(stream, case.micro_batch), measured(reference, case))
        for stream, reference in zip(streams, run.references, strict=False)
    ]
    return max(found, key=lambda one: sum(map(abs, one.values())))


@pytest.mark.parametrize("case", TWO_RANKS, ids=RankCase.label)
def test_every_figure_equals_but_for_what_is_named(case: RankCase) -> None:
    run = runs()[case.label()]
    assert not run.error, run.error
    most = next((size for name, size in NAMED.items() if case.label().startswith(name)), 0)
    assert max(map(abs, apart(run).values()), default=0) <= most


@pytest.mark.parametrize("case", REFUSED, ids=RankCase.label)
def test_what_torch_refuses_is_told_by_the_plan(case: RankCase) -> None:
    assert "already managed by another FSDP group" in runs()[case.label()].error
    assert shared_apart(trace_of(case))
