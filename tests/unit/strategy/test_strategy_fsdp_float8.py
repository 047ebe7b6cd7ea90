"""FSDP2 gathering torchao's weights in float8, and the strategies that do not take them."""

from dataclasses import replace

import pytest

from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import ModuleLayout
from gpu_plan.planner.workload.training import Precision
from tests.support.live_bytes import at_rest, labelled
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

COUNT, WHOLE, RANKS = 3, 4096 * 4, 4


def context(**changes: object) -> RankContext:
    """Three modules in units of their own; the second one computes in float8."""
    trace = tiny_trace([(4096, 4)] * COUNT, element_bytes=2)
    places = ModuleLayout(blocks=tuple(f"m{index}" for index in range(COUNT)), float8_linears=("m1",))
    return small_context(replace(trace, layout=places), **{"precision": Precision("fp8-mixed"), **changes})


def sizes(plan, label):
    return sorted({size for _, sign, size in labelled(plan.stream, label) if sign > 0})


def test_one_byte_an_element_is_gathered() -> None:
    plan = FullyShardedDataParallel().rank(context())
    assert sizes(plan, "all-gather output") == [WHOLE, 2 * WHOLE]
    assert sizes(plan, "unsharded parameters") == [WHOLE, 2 * WHOLE]
    assert sizes(plan, "float8 weight shard") == [WHOLE // RANKS]
    assert sizes(plan, "scaled weight shard") == sizes(plan, "clamped weight shard") == [4 * WHOLE // RANKS]
    # Gradients are 16-bit, as everything else is.
    assert sizes(plan, "reduce-scatter input") == [2 * WHOLE]
    gathers = [c.bytes for c in plan.collectives if c.kind == "all_gather"]
    assert gathers.count(WHOLE) * 2 == gathers.count(2 * WHOLE) > 0


def test_fp32_copies_are_gone_before_the_gather() -> None:
    stream = FullyShardedDataParallel().rank(context()).stream
    for label in ("scaled weight shard", "clamped weight shard", "float8 weight shard"):
        assert sum(sign for _, sign, _ in labelled(stream, label)) == 0


def test_switched_off_it_is_bf16_mixed() -> None:
    off = FullyShardedDataParallel().rank(context(settings=(("fp8.all_gather", "false"),)))
    plain = FullyShardedDataParallel().rank(context(precision=Precision("bf16-mixed")))
    assert not labelled(off.stream, "float8 weight shard")
    assert at_rest(off.stream) == at_rest(plain.stream)
    assert [c.bytes for c in off.collectives] == [c.bytes for c in plain.collectives]


@pytest.mark.parametrize("name", ["fsdp1", "zero1", "zero2", "zero3"])
def test_where_it_is_not_modelled_it_is_refused(name: str) -> None:
    assert "float8" in (STRATEGIES[name].refuses(context()) or "")
    assert "float8" not in (STRATEGIES[name].refuses(context(precision=Precision("bf16-mixed"))) or "")


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_where_it_is(name: str) -> None:
    assert STRATEGIES[name].refuses(context()) is None
    assert "on the host" in (FullyShardedDataParallel().refuses(context(offload=Offload.ALL)) or "")
