"""FSDP2 reducing gradients in a type of its own."""

from dataclasses import replace

import pytest

from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.trace.events import ModuleLayout
from gpu_plan.planner.workload.training import Precision
from tests.support.live_bytes import at_rest, labelled
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

COUNT, WHOLE = 3, 4096 * 4
"""Modules, and elements of each one's weight."""
FP32 = (("dtype.reduce", "float32"),)


def mixed(**changes: object) -> RankContext:
    trace = tiny_trace([(4096, 4)] * COUNT, element_bytes=2)
    places = ModuleLayout(blocks=tuple(f"m{index}" for index in range(COUNT)))
    return small_context(replace(trace, layout=places), precision=Precision("bf16-mixed"), **changes)


def test_collective_buffers_are_of_the_reduce_type() -> None:
    narrow, wide = (FullyShardedDataParallel().rank(mixed(settings=settings)) for settings in ((), FP32))
    for label, share in (("reduce-scatter input", 1), ("reduce-scatter output", 4)):
        assert {size for _, _, size in labelled(narrow.stream, label)} == {2 * WHOLE // share}
        assert {size for _, _, size in labelled(wide.stream, label)} == {4 * WHOLE // share}
    # Reduced in the masters' type, the output is the gradient's shard itself.
    assert labelled(narrow.stream, "gradient shard")
    assert not labelled(wide.stream, "gradient shard")
    assert at_rest(narrow.stream) == at_rest(wide.stream)
    assert [c.bytes for c in wide.collectives if c.kind == "reduce_scatter"] == [4 * WHOLE] * COUNT


def test_gradients_accumulate_whole_in_the_reduce_type() -> None:
    label = "accumulated gradient"
    plain = FullyShardedDataParallel().rank(mixed(accumulation_steps=2)).stream
    assert not labelled(plain, label)
    stream = FullyShardedDataParallel().rank(mixed(accumulation_steps=2, settings=FP32)).stream
    assert not labelled(FullyShardedDataParallel().rank(mixed(settings=FP32)).stream, label)
    events = labelled(stream, label)
    # Cast in the first micro step of each iteration, given back in the last one.
    assert [(segment, size) for segment, sign, size in events if sign > 0] == [(1, 4 * WHOLE)] * 3 + [
        (4, 4 * WHOLE)
    ] * 3
    assert [segment for segment, sign, _ in events if sign < 0] == [2] * 3 + [5] * 3
    freed = stream.event_tensor[stream.event_sign < 0]
    assert len(freed) == len(set(freed.tolist()))
    assert at_rest(stream) == at_rest(plain)


@pytest.mark.parametrize(
    ("precision", "reduce", "taken"),
    [
        (Precision("bf16-mixed"), "float32", True),
        (Precision("bf16-mixed"), "bfloat16", True),
        (Precision("bf16"), "float32", True),
        (Precision("fp32"), "float32", True),
        (Precision("fp32"), "bfloat16", False),
        (Precision("fp16-mixed"), "float32", False),
    ],
)
def test_casts_that_copy_are_refused(precision: Precision, reduce: str, taken: bool) -> None:
    context = replace(mixed(settings=(("dtype.reduce", reduce),)), precision=precision)
    refusal = FullyShardedDataParallel().refuses(context)
    assert (refusal is None) == taken
    assert taken or f"gradients in {reduce}" in str(refusal)
