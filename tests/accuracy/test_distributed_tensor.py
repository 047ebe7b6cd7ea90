"""Replayed ranks of tensor and expert parallel, alone and under FSDP2, against real ones that transformers spread on
gloo.

Gloo's threads may hold what a functional collective put out for longer than the step does: a rank on which they do
stands above. So each figure is the replay's on some rank, and none is below it; a case that differs is run again.
"""

from functools import cache

import pytest

from tests.support.distributed_reference import RankRun, run_ranks
from tests.support.ranks.case import RankCase
from tests.support.ranks.comparison import RankFigures, differences, measured, replayed
from tests.support.ranks.replay import stream_of
from tests.support.ranks.tensor_cases import (
    EIGHT_RANKS,
    EXPERTS_OF_FOUR,
    EXPERTS_OF_TWO,
    FOUR_RANKS,
    TIED_FOUR,
    TWO_RANKS,
    UNEVEN,
)

pytestmark = pytest.mark.slow
WORLDS = {
    2: TWO_RANKS + EXPERTS_OF_TWO + UNEVEN[2][1:],
    4: FOUR_RANKS + TIED_FOUR + EXPERTS_OF_FOUR + UNEVEN[4],
    8: EIGHT_RANKS,
}
LAUNCHES = 3


@cache
def runs(world_size: int) -> dict[str, RankRun]:
    return {run.case.label(): run for run in run_ranks(WORLDS[world_size], world_size)}


def apart(ours: RankFigures, run: RankRun) -> dict[str, int]:
    """Figures that no rank has, and those of which a rank has less: replayed minus real, of the nearest rank."""
    assert not run.error, run.error
    real = [measured(reference, run.case).flat() for reference in run.references]
    found = {name: [value - other[name] for other in real] for name, value in ours.flat().items()}
    uneven = bool(run.case.changes)  # the first rank then holds the largest part
    return {name: min(gaps, key=abs) for name, gaps in found.items() if 0 not in gaps or (max(gaps) > 0 and not uneven)}


def compare(case: RankCase, world_size: int) -> None:
    ours = replayed(stream_of(case, world_size), case.micro_batch)
    found = apart(ours, runs(world_size)[case.label()])
    for _ in range(LAUNCHES - 1):
        if found:
            found = apart(ours, run_ranks([case], world_size)[0])
    assert found == {}


@pytest.mark.parametrize("case", TWO_RANKS + EXPERTS_OF_TWO, ids=RankCase.label)
def test_every_figure_of_two_ranks_equals(case: RankCase) -> None:
    compare(case, 2)


@pytest.mark.parametrize("case", FOUR_RANKS + TIED_FOUR + EXPERTS_OF_FOUR, ids=RankCase.label)
def test_every_figure_of_four_ranks_equals(case: RankCase) -> None:
    compare(case, 4)


@pytest.mark.parametrize("case", EIGHT_RANKS, ids=RankCase.label)
def test_every_figure_of_eight_ranks_equals(case: RankCase) -> None:
    compare(case, 8)


@pytest.mark.parametrize(
    ("case", "world_size"), [(case, size) for size, cases in UNEVEN.items() for case in cases], ids=str
)
def test_every_kind_of_rank_equals_its_own_plan(case: RankCase, world_size: int) -> None:
    """Each rank against the replay of its own place; gloo's threads may let it stand above once, not every time."""
    planned = range(1) if case.crowded else range(world_size)
    ours = [replayed(stream_of(case, world_size, rank), case.micro_batch) for rank in planned]
    left = set(planned)
    for launch in range(LAUNCHES):
        run = runs(world_size)[case.label()] if launch == 0 else run_ranks([case], world_size)[0]
        assert not run.error, run.error
        left -= {rank for rank in left if not differences(ours[rank], measured(run.references[rank], case))}
        if not left:
            break
    assert left == set()


def test_the_comparison_can_fail() -> None:
    """The whole model on every rank does not pass for a part of it."""
    case = TWO_RANKS[0]
    whole = RankCase(architecture="llama-3", strategy="single")
    real = [measured(reference, case) for reference in runs(2)[case.label()].references]
    ours = replayed(stream_of(whole, 1), whole.micro_batch)
    assert all(differences(ours, other) for other in real)
