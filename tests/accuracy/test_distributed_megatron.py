"""Replayed ranks against Megatron-core's own GPTModel, which its own schedules run on gloo.

megatron-core is not among the dependencies: `pip install --no-deps megatron-core==0.16.1` brings it.
"""

from functools import cache
from typing import Any

import pytest

from tests.support.ranks.megatron.case import CASES, ITERATIONS, MegatronCase
from tests.support.ranks.megatron.replay import measured, replay, replayed, run_all

pytestmark = pytest.mark.slow


@cache
def runs(world_size: int) -> dict[str, tuple[dict[str, Any], ...]]:
    pytest.importorskip("megatron.core", reason="pip install --no-deps megatron-core==0.16.1")
    return run_all([case for case in CASES if case.world == world_size], world_size)


def _figures(case: MegatronCase) -> list[tuple[int, int]]:
    real = runs(case.world)[case.label()]
    each = case.world // case.pipeline
    found = []
    for rank, values in enumerate(real):
        stream, _ = replay(case, rank // each)
        for iteration in range(ITERATIONS):
            theirs, ours = measured(values, case, iteration), replayed(stream, case, iteration)
            found.append((ours["peak"], theirs["peak"]))
    return found


@pytest.mark.parametrize("case", [case for case in CASES if case.differs == 0.0], ids=MegatronCase.label)
def test_every_peak_of_every_rank_equals(case: MegatronCase) -> None:
    assert all(ours == theirs for ours, theirs in _figures(case))


@pytest.mark.parametrize("case", [case for case in CASES if case.differs > 0.0], ids=MegatronCase.label)
def test_peaks_differ_by_what_is_known(case: MegatronCase) -> None:
    for ours, theirs in _figures(case):
        assert ours == pytest.approx(theirs, rel=case.differs)
