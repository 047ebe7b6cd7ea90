"""FSDP1 with its flat parameters on the host, against arithmetic on a step small enough to follow by hand."""

import numpy as np
import pytest

from gpu_plan.planner.strategy.base import RankPlan
from gpu_plan.planner.strategy.kinds.fsdp1 import FullyShardedDataParallel1
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.training import Precision
from tests.support.live_bytes import at_load, at_rest, labelled
from tests.unit.strategy.test_strategy_fsdp1 import BLOCK, ROOT, SHAPES, blocks, context, run

WORLD = 8
P = int(sum(np.prod(shape) for shape in SHAPES))
SLACK = 64 * 512


def offloaded(**changes: object) -> RankPlan:
    return run(context(offload=Offload.ALL, world_size=WORLD, **changes))[0]


def copied(plan: RankPlan, kind: str, phase: str) -> int:
    return sum(c.bytes * c.count for c in plan.collectives if c.kind == kind and c.phase == phase)


def test_nothing_rests_on_the_device() -> None:
    """A step leaves its batch there and no more; the optimizer works on the host."""
    plan = offloaded()
    assert at_load(plan.stream) == 0
    assert max(at_rest(plan.stream)) < SLACK
    assert plan.optimizer_work.on_host
    assert any("CPUOffload" in note for note in plan.notes)


def test_a_shard_is_copied_and_cast_for_each_gather() -> None:
    """fp32 from the host, 16 bits to be gathered: what comes is dropped at once. The root is asked for again in
    backward, where its whole parameter still stands, and is copied and cast once more."""
    plan = offloaded()
    here = [size for _, sign, size in labelled(plan.stream, "flat shard from host") if sign > 0]
    cast = [size for _, sign, size in labelled(plan.stream, "low-precision shard") if sign > 0]
    assert here == [2 * size for size in cast]
    root, block = 2 * ROOT // WORLD, 2 * BLOCK // WORLD
    assert cast == 2 * [root, *[block] * 3, root, *[block] * 3]
    for label in ("flat shard from host", "low-precision shard"):
        assert sum(sign for _, sign, _ in labelled(plan.stream, label)) == 0


def test_what_needs_no_cast_is_what_came_from_the_host() -> None:
    plan = offloaded(precision=Precision("bf16"))
    here = [size for _, sign, size in labelled(plan.stream, "flat shard from host") if sign > 0]
    assert here == 2 * [2 * ROOT // WORLD, *[2 * BLOCK // WORLD] * 6], "the root stays gathered and is not copied again"
    assert labelled(plan.stream, "low-precision shard") == []


def test_gradient_shards_leave_when_backward_is_over() -> None:
    """Behind the last micro step, not when the next forward begins."""
    plan = offloaded(accumulation_steps=2)
    events = labelled(plan.stream, "gradient shard")
    taken = {segment for segment, sign, _ in events if sign < 0}
    made = {segment for segment, sign, _ in events if sign > 0}
    assert taken == made
    assert sum(sign for _, sign, _ in events) == 0


def test_frozen_shards_have_gradients_on_the_host_too() -> None:
    """Pinned in blocks of powers of two: every shard and as much again; fp32 and two moments of what is trained."""
    frozen = blocks(frozen=(1, 2, 3))
    plan = offloaded(trace=frozen)
    root = 4 * ROOT // WORLD
    assert root == 1 << (root - 1).bit_length()
    assert plan.host_bytes == pytest.approx(2 * (root + 3 * 2 * BLOCK // WORLD) + 2 * root, abs=64)


def test_copies_by_phase() -> None:
    plan = offloaded()
    assert copied(plan, "host_to_device", "forward") == 4 * P // WORLD
    assert copied(plan, "host_to_device", "backward") == 4 * 3 * BLOCK // WORLD
    assert copied(plan, "device_to_host", "backward") == 4 * P // WORLD


def test_gradients_of_every_micro_step_are_not_added_up() -> None:
    each = context(offload=Offload.ALL, accumulation_steps=2, settings=(("fsdp.sync_each_batch", "true"),))
    assert "no accumulation outside of no_sync" in str(FullyShardedDataParallel1().refuses(each))
    assert FullyShardedDataParallel1().refuses(context(offload=Offload.ALL)) is None
