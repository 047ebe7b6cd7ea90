"""Ranks of families and options that no other list has, replayed against real ones on gloo."""

from functools import cache

import pytest

from tests.support.distributed_reference import RankRun, run_ranks
from tests.support.ranks.case import RankCase
from tests.support.ranks.comparison import differences, measured, replayed
from tests.support.ranks.replay import stream_of
from tests.support.ranks.unseen_cases import FOUR_RANKS, TWO_RANKS
from tests.support.ranks.zero_replay import streams_of

pytestmark = pytest.mark.slow
HALF_STATISTICS = 1920
"""Layer norms keep their statistics in 16 bits on the CPU, in 32 on CUDA, whose kernels the trace follows."""
NAMED = {
    "starcoder-2": HALF_STATISTICS,
    "modernbert": HALF_STATISTICS,
    "falcon, zero3": 960,
}


@cache
def runs(world_size: int) -> dict[str, RankRun]:
    """All runs of one launch, by case."""
    cases = TWO_RANKS if world_size == 2 else FOUR_RANKS
    return {run.case.label(): run for run in run_ranks(cases, world_size)}


def apart(run: RankRun, world_size: int) -> dict[str, int]:
    """Figures that differ, of the rank that is furthest apart."""
    case = run.case
    zero = case.strategy.startswith("zero")
    streams = streams_of(case, world_size) if zero else [stream_of(case, world_size)]
    found = [
        differences(replayed(stream, case.micro_batch), measured(reference, case))
        for stream, reference in zip(streams, run.references, strict=False)
    ]
    return max(found, key=lambda one: sum(map(abs, one.values())))


@pytest.mark.parametrize(
    ("case", "world_size"),
    [*((case, 2) for case in TWO_RANKS), *((case, 4) for case in FOUR_RANKS)],
    ids=lambda value: value.label() if isinstance(value, RankCase) else str(value),
)
def test_every_figure_equals(case: RankCase, world_size: int) -> None:
    """But for what is named."""
    run = runs(world_size)[case.label()]
    assert not run.error, run.error
    found = apart(run, world_size)
    most = next((size for name, size in NAMED.items() if case.label().startswith(name)), 0)
    assert max(map(abs, found.values()), default=0) <= most
