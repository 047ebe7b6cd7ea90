"""FSDP2's passes placed once for ranks that differ in sizes: equal to those that are placed one by one."""

from dataclasses import fields, replace

import numpy as np
import pytest

from gpu_plan.planner.memory.stream import assembling
from gpu_plan.planner.memory.stream.orders import Orders
from gpu_plan.planner.memory.stream.placing import Handle
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.fsdp2 import rank, structure
from gpu_plan.planner.strategy.fsdp2.layout import Layout
from gpu_plan.planner.strategy.fsdp2.native import native_units
from gpu_plan.planner.strategy.fsdp2.passes import Passes, Unsharded
from gpu_plan.planner.strategy.fsdp2.rank import sharded_rank
from gpu_plan.planner.strategy.fsdp2.units import Wrapping, wrap_units
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Precision, Stack
from tests.support.tiny_trace import tiny_trace

SHAPES = ((1023, 511), (4096, 512), (4096, 512), (4096, 512), (1023, 512))


def context() -> RankContext:
    trace = tiny_trace(SHAPES)
    trace = replace(trace, layout=replace(trace.layout, blocks=["m1", "m2", "m3"], float8_linears=("m1", "m2")))
    return RankContext(
        trace=trace,
        precision=Precision("bf16-mixed"),
        optimizer=Optimizer("adamw-fused"),
        stack=Stack.ACCELERATE,
        clipping=True,
        checkpointing=Checkpointing.NONE,
        accumulation_steps=1,
        world_size=16,
        capability=(9, 0),
        nodes=2,
    )


def one_by_one(layout: Layout, _: Wrapping) -> list[Handle]:
    passes = Passes(layout)
    unsharded: dict[str, Unsharded] = {}
    for in_pass in layout.builder.passes:
        unsharded = passes.forward(in_pass)
        passes.backward(in_pass, unsharded)
        passes.add_gradients(in_pass)
    return passes.gradient_shards


def differing(one: RankStream, other: RankStream) -> list[str]:
    """Names of the columns that are not equal."""
    names = [field.name for field in fields(one) if field.compare and field.name != "trace"]
    return [name for name in names if not np.array_equal(getattr(one, name), getattr(other, name))]


CHANGES = [
    {},
    {"replicate": 2},
    {"offload": Offload.ALL},
    {"offload": Offload.ALL, "replicate": 4},
    {"accumulation_steps": 2},
    {"accumulation_steps": 2, "settings": (("dtype.reduce", "float32"),)},
    {"accumulation_steps": 2, "settings": (("fsdp.sync_each_batch", "true"),), "replicate": 2},
    {"settings": (("fsdp.reshard_after_forward", "false"),)},
    {"precision": Precision("fp8-mixed")},
    {"precision": Precision("bf16")},
]


@pytest.mark.parametrize("wrap", [wrap_units, native_units])
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_equals_what_is_placed_one_by_one(
    changes: dict[str, object], wrap: Wrapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(context(), **changes)  # type: ignore[arg-type]
    ranks = [replace(one, world_size=world) for world in (16, 64, 24)]
    shared = [sharded_rank(each, wrap) for each in ranks]
    monkeypatch.setattr(rank, "place_passes", one_by_one)
    monkeypatch.setattr(assembling, "orders", lambda _: Orders())
    for each, found in zip(ranks, shared, strict=True):
        alone = sharded_rank(each, wrap)
        assert differing(found.stream, alone.stream) == []
        assert replace(found, stream=alone.stream) == alone


def test_passes_are_placed_and_put_in_order_once() -> None:
    one = context()
    streams = [sharded_rank(replace(one, world_size=world, replicate=2)).stream for world in (16, 32, 64)]
    assert len(structure._structures(one.trace)) == 1
    assert streams[0].event_tensor is streams[1].event_tensor is streams[2].event_tensor


def test_ranks_of_another_structure_are_placed_on_their_own() -> None:
    one = context()
    for replicate in (1, 2, 4):
        sharded_rank(replace(one, replicate=replicate))
    sharded_rank(replace(one, offload=Offload.ALL))
    assert len(structure._structures(one.trace)) == 3
