"""Replayed ranks of tensor and expert parallel, alone and under FSDP2, against real ones that transformers spread on
gloo.

Every rank is compared with the replay of its own place. Gloo's threads are waited for
(`tests.support.ranks.settled_groups`); a case that differs all the same is run again.
"""

from functools import cache
from math import prod

import pytest

from gpu_plan.planner.dtypes import tensor_bytes
from gpu_plan.planner.units import ceil_div
from tests.support.distributed_reference import RankRun, run_ranks
from tests.support.ranks.case import RankCase
from tests.support.ranks.comparison import RankFigures, differences, measured, replayed
from tests.support.ranks.replay import stream_of, trace_of
from tests.support.ranks.tensor_cases import (
    CLASSES_OF_FOUR,
    CLASSES_OF_TWO,
    CUT_OF_FOUR,
    CUT_OF_TWO,
    EIGHT_RANKS,
    EXPERTS_OF_FOUR,
    EXPERTS_OF_TWO,
    FOUR_RANKS,
    OWN_OF_FOUR,
    OWN_OF_TWO,
    TIED_FOUR,
    TWO_RANKS,
    UNEVEN,
    WORLDS,
)

pytestmark = pytest.mark.slow
LAUNCHES = 2


@cache
def runs(world_size: int) -> dict[str, RankRun]:
    return {run.case.label(): run for run in run_ranks(WORLDS[world_size], world_size)}


def compare(case: RankCase, world_size: int) -> None:
    """Each rank against the replay of its own place; of crowded experts the first, to which the tokens go."""
    planned = range(1) if case.crowded else range(world_size)
    ours = {rank: replayed(stream_of(case, world_size, rank), case.micro_batch) for rank in planned}
    for launch in range(LAUNCHES):
        run = runs(world_size)[case.label()] if launch == 0 else run_ranks([case], world_size)[0]
        assert not run.error, run.error
        real = [measured(reference, case) for reference in run.references]
        ours = {rank: own for rank, own in ours.items() if apart(own, real[rank], case, rank, world_size)}
        if not ours:
            return
    assert {rank: apart(own, real[rank], case, rank, world_size) for rank, own in ours.items()} == {}


def apart(ours: RankFigures, real: RankFigures, case: RankCase, rank: int, world_size: int) -> dict[str, int]:
    """Figures that differ; of what is loaded by the padding alone that is not there yet."""
    found = differences(ours, real)
    if found.get("wrapped", 0) == unpadded(case, rank, world_size):
        found.pop("wrapped", None)
    return found


def unpadded(case: RankCase, rank: int, world_size: int) -> int:
    """Bytes of padding that a late rank's uneven shards do not have when transformers has loaded them: the first
    forward adds it (torch _fsdp_param.py: reset_sharded_param), and no rank peaks before."""
    if not case.strategy.endswith(("_tp", "_ep")):
        return 0
    shards = world_size // case.replicas // case.tensor_parallel
    place = rank // case.tensor_parallel % shards
    whole = [one for one in trace_of(case, rank).parameters if not one.experts]
    return sum(tensor_bytes(_missing(one.shape, place, shards), one.dtype) for one in whole)


def _missing(shape: tuple[int, ...], place: int, shards: int) -> int:
    """Elements between a shard and the largest one, cut as torch.chunk cuts the first dimension."""
    rows = ceil_div(shape[0], shards)
    own = min(rows, max(0, shape[0] - place * rows))
    return (rows - own) * prod(shape[1:])


@pytest.mark.parametrize(
    "case", TWO_RANKS + EXPERTS_OF_TWO + CLASSES_OF_TWO + OWN_OF_TWO + CUT_OF_TWO, ids=RankCase.label
)
def test_every_figure_of_two_ranks_equals(case: RankCase) -> None:
    compare(case, 2)


@pytest.mark.parametrize(
    "case", FOUR_RANKS + TIED_FOUR + EXPERTS_OF_FOUR + CLASSES_OF_FOUR + OWN_OF_FOUR + CUT_OF_FOUR, ids=RankCase.label
)
def test_every_figure_of_four_ranks_equals(case: RankCase) -> None:
    compare(case, 4)


@pytest.mark.parametrize("case", EIGHT_RANKS, ids=RankCase.label)
def test_every_figure_of_eight_ranks_equals(case: RankCase) -> None:
    compare(case, 8)


@pytest.mark.parametrize(
    ("case", "world_size"),
    [pytest.param(case, size, id=f"{case.label()} on {size}") for size, cases in UNEVEN.items() for case in cases],
)
def test_every_kind_of_rank_equals_its_own_plan(case: RankCase, world_size: int) -> None:
    compare(case, world_size)


def test_the_comparison_can_fail() -> None:
    """The whole model on every rank does not pass for a part of it."""
    case = TWO_RANKS[0]
    whole = RankCase(architecture="llama-3", strategy="single")
    real = [measured(reference, case) for reference in runs(2)[case.label()].references]
    ours = replayed(stream_of(whole, 1), whole.micro_batch)
    assert all(differences(ours, other) for other in real)
