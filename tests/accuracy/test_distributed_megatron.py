"""Replayed ranks against Megatron-core's own GPTModel, which its own schedules run on gloo.

megatron-core is not among the dependencies: `pip install --no-deps megatron-core==0.16.1` brings it.
"""

from functools import cache

import pytest

from tests.support.ranks.megatron.case import CASES, ITERATIONS, OF_VERL, MegatronCase
from tests.support.ranks.megatron.replay import Values, least, replay, replayed, run_often

pytestmark = pytest.mark.slow


@cache
def runs(world_size: int) -> dict[str, list[tuple[Values, ...]]]:
    pytest.importorskip("megatron.core", reason="pip install --no-deps megatron-core==0.16.1")
    return run_often([case for case in (*CASES, *OF_VERL) if case.world == world_size], world_size)


def _figures(case: MegatronCase) -> list[tuple[int, int]]:
    real = runs(case.world)[case.label()]
    each = case.world // case.pipeline
    found = []
    for rank in range(case.world):
        stream, _ = replay(case, rank // each)
        for iteration in range(ITERATIONS):
            found.append((replayed(stream, case, iteration)["peak"], least(real, rank, case, iteration)))
    return found


@pytest.mark.parametrize("case", [case for case in (*CASES, *OF_VERL) if case.differs == 0.0], ids=MegatronCase.label)
def test_every_peak_of_every_rank_equals(case: MegatronCase) -> None:
    assert all(ours == theirs for ours, theirs in _figures(case))


@pytest.mark.parametrize("case", [case for case in CASES if case.differs > 0.0], ids=MegatronCase.label)
def test_peaks_differ_by_what_is_known(case: MegatronCase) -> None:
    for ours, theirs in _figures(case):
        assert ours == pytest.approx(theirs, rel=case.differs)
