"""ZeRO-3 with swap files against real ranks: what is read when, which runs die, and bytes on disk and on the host.

The recording was made by `python -m tests.support.ranks.swap_reference` on two gloo ranks with DeepSpeed's async_io,
compiled there. It takes minutes and libaio's headers; here the planner is held to the recording, and a slow test makes
one case anew where async_io can be built.
"""

import json
from functools import cache
from typing import Any

import pytest

from gpu_plan.planner.strategy.base import RankPlan
from gpu_plan.planner.strategy.zero.stage3.infinity import rank_plan
from tests.support.ranks.case import RankCase
from tests.support.ranks.swap_reference import (
    CASES,
    GOLDEN,
    WORLD_SIZE,
    measured,
    planned,
    run_swapping,
    swapping_context,
)

SAMPLE = (0, 1, 5)
"""A run that dies of too few buffers, one that dies of reading twice, one that lives."""


@cache
def recording() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text())["ranks"]
    return found


def compare(case: RankCase) -> None:
    assert [planned(case, WORLD_SIZE)] * WORLD_SIZE == recording()[case.label()]


@pytest.mark.parametrize("case", [CASES[number] for number in SAMPLE], ids=RankCase.label)
def test_a_sample_equals_the_recording(case: RankCase) -> None:
    compare(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for n, c in enumerate(CASES) if n not in SAMPLE], ids=RankCase.label)
def test_the_rest_equals_the_recording(case: RankCase) -> None:
    compare(case)


def plan_of(case: RankCase, **settings: str) -> RankPlan:
    context = swapping_context(case, WORLD_SIZE)
    kept = {key: value for key, value in context.settings if key != "zero.param_buffer_count"}
    from dataclasses import replace

    return rank_plan(replace(context, settings=tuple({**kept, **settings}.items())))


def test_what_would_end_the_run_is_chosen_or_told() -> None:
    plan = plan_of(CASES[0])
    chosen = dict(plan.chosen)
    assert not plan.failure_reason
    assert int(chosen["zero.param_buffer_count"]) > 5
    told = plan_of(CASES[0], **{"zero.param_buffer_count": "5"})
    assert "runs out of swap buffers" in told.failure_reason
    twice = plan_of(CASES[0], **{"zero.param_buffer_count": "40"})
    assert dict(twice.chosen)["zero.prefetch_bucket_size"] == "0"
    assert not twice.failure_reason
    asked = plan_of(CASES[0], **{"zero.param_buffer_count": "40", "zero.prefetch_bucket_size": "50000000"})
    assert "two buffers" in asked.failure_reason


@pytest.mark.slow
def test_a_real_run_is_as_recorded() -> None:
    """Skipped where DeepSpeed cannot build async_io."""
    pytest.importorskip("deepspeed")
    from deepspeed.ops.op_builder import AsyncIOBuilder

    if not AsyncIOBuilder().is_compatible(verbose=False):
        pytest.skip("DeepSpeed's async_io needs libaio's headers")
    case = CASES[5]
    assert [measured(run, case) for run in run_swapping([case], WORLD_SIZE)[0]] == recording()[case.label()]
