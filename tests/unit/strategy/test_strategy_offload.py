"""Parameters in host memory: what then is on the device, on the host, and goes between them."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.strategy.base import RankContext, RankPlan, Strategy
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.strategy.kinds.hsdp import HybridShardedDataParallel
from gpu_plan.planner.strategy.kinds.zero3 import Zero3
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import ModuleLayout, StepTrace
from gpu_plan.planner.workload.training import Optimizer, Peft, Precision
from tests.support.live_bytes import at_load, at_rest, labelled, live, peak
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import ACTIVATION, tiny_trace

BATCH = 64
SHAPE = (4096, 4)
WHOLE = 4096 * 4
"""Elements of one module's weight; a quarter of that is a rank's shard."""
BUCKET = 50_000


def chain(count: int = 4, *, element_bytes: int = 2, frozen: tuple[int, ...] = (), rows: int = 4096) -> StepTrace:
    trace = tiny_trace([(rows, 4)] * count, element_bytes=element_bytes, frozen=frozen)
    return replace(trace, layout=ModuleLayout(blocks=tuple(f"m{i}" for i in range(count))))


def zero3(trace: StepTrace, offload: Offload = Offload.ALL, **changes: Any) -> RankPlan:
    more = changes.pop("settings", ())
    sizes = (("zero.reduce_bucket_size", str(BUCKET)), ("zero.param_persistence_threshold", "0"), *more)
    return Zero3().rank(
        small_context(trace, offload=offload, precision=Precision("bf16-mixed"), settings=sizes, **changes)
    )


def fsdp(trace: StepTrace, offload: Offload = Offload.ALL, **changes: Any) -> RankPlan:
    return FullyShardedDataParallel().rank(small_context(trace, offload=offload, **changes))


def copied(plan: RankPlan, kind: str, phase: str) -> int:
    return sum(c.bytes * c.count for c in plan.collectives if c.kind == kind and c.phase == phase)


# -- ZeRO-3 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 4])
def test_zero3_leaves_only_its_bucket_on_the_device(world: int) -> None:
    plan = zero3(chain(), world_size=world)
    assert at_load(plan.stream) == 2 * BUCKET
    assert at_rest(plan.stream) == [2 * BUCKET + BATCH] * 2
    kept = zero3(chain(), Offload.OPTIMIZER, world_size=world)
    assert at_rest(kept.stream) == [2 * BUCKET + BATCH + 2 * 4 * WHOLE // world] * 2


def test_zero3_copies_partitions_over_for_every_gather() -> None:
    plan = zero3(chain(), settings=(("zero.max_reuse_distance", "0"), ("zero.prefetch_bucket_size", "0")))
    gathered = {phase: copied(plan, "all_gather", phase) for phase in ("forward", "backward")}
    assert gathered == {"forward": 2 * 4 * WHOLE, "backward": 2 * 4 * WHOLE}
    assert copied(plan, "host_to_device", "forward") == gathered["forward"] // 4
    # In backward gradients come back as well, to be counted and added up.
    assert copied(plan, "host_to_device", "backward") == gathered["backward"] // 4 + 2 * WHOLE
    assert copied(plan, "host_to_device", "step") == 0
    passing = labelled(plan.stream, "weight partition from host")
    assert {size for _, _, size in passing} == {2 * WHOLE // 4}
    assert sum(sign for _, sign, _ in passing) == 0


def test_zero3_on_one_rank_copies_whole_weights_without_gathering() -> None:
    plan = zero3(chain(), world_size=1)
    assert not [c for c in plan.collectives if c.kind == "all_gather"]
    assert copied(plan, "host_to_device", "forward") == 2 * 4 * WHOLE
    assert labelled(plan.stream, "weight partition from host") == []
    assert {size for _, sign, size in labelled(plan.stream, "gathered weight") if sign > 0} == {2 * WHOLE}
    kept = zero3(chain(), Offload.OPTIMIZER, world_size=1)
    assert labelled(kept.stream, "gathered weight") == []


def test_zero3_fetches_persistent_weights_again_after_the_step() -> None:
    words = (("zero.param_persistence_threshold", str(WHOLE)),)
    plan = Zero3().rank(small_context(chain(), offload=Offload.ALL, precision=Precision("bf16-mixed"), settings=words))
    assert copied(plan, "host_to_device", "step") == 2 * 4 * WHOLE // 4
    bucket = 2 * 500_000_000
    assert at_rest(plan.stream) == [bucket + BATCH + 2 * 4 * WHOLE] * 2


def test_zero3_pins_a_buffer_for_each_group_and_leaves_blocks_cached() -> None:
    odd = chain(3, rows=4100)
    share = 4100  # elements of each of three partitions
    optimizer = zero3(odd, Offload.OPTIMIZER).host_bytes
    # Three partitions of 8200 bytes: together in a block of 32 KiB; made apart in blocks of 16 KiB, which stay cached.
    assert zero3(odd).host_bytes == optimizer + 32768 + 3 * 16384
    pageable = (("zero.pin_memory", "false"),)
    exact = 3 * share * (4 + 4 + 4) + 3 * share * 4 + 3 * share * 2
    assert zero3(odd, settings=pageable).host_bytes == exact + 32768


def test_zero3_keeps_frozen_weights_on_the_host_too() -> None:
    plan = zero3(chain(frozen=(1,)))
    assert at_load(plan.stream) == 2 * BUCKET
    assert copied(plan, "host_to_device", "forward") == 2 * 4 * WHOLE // 4
    # Its partition stays in a block of its own; all others moved to one of their group.
    assert zero3(chain(frozen=(1,)), Offload.OPTIMIZER).host_bytes < plan.host_bytes < zero3(chain()).host_bytes


# -- FSDP2 -------------------------------------------------------------------------------------------------


def test_fsdp_keeps_nothing_on_the_device_between_steps() -> None:
    plan = fsdp(chain(element_bytes=4))
    assert at_rest(plan.stream) == [BATCH] * 2
    assert plan.optimizer_work.on_host
    assert not fsdp(chain(element_bytes=4), Offload.NONE).optimizer_work.on_host
    # On the CPU torch's default Adam goes over its tensors one by one.
    assert plan.optimizer_work == fsdp(chain(element_bytes=4), optimizer=Optimizer("adamw-forloop")).optimizer_work


def test_fsdp_host_has_shards_gradients_and_state() -> None:
    assert fsdp(chain(element_bytes=4)).host_bytes == 4 * (4 * WHOLE)
    # 1025 rows of 16 bytes: pinned blocks of 32 KiB for shard and gradient; state is pageable.
    assert fsdp(chain(1, element_bytes=4, rows=4100)).host_bytes == 2 * 32768 + 2 * 1025 * 16
    sgd = fsdp(chain(element_bytes=4), optimizer=Optimizer("sgd"))
    assert sgd.host_bytes == 2 * (4 * WHOLE)


def test_fsdp_copies_shards_to_the_device_for_every_gather() -> None:
    plan = fsdp(chain(element_bytes=4))
    shards = 4 * WHOLE  # four quarters, in bytes of fp32
    assert copied(plan, "host_to_device", "forward") == copied(plan, "host_to_device", "backward") == shards
    assert copied(plan, "device_to_host", "backward") == shards
    # Entering the last block: two all-gather outputs and the unsharded weight, and no shard that stays.
    assert peak(plan.stream, 1) == BATCH + 3 * ACTIVATION + 3 * 4 * WHOLE


def test_fsdp_casts_shards_on_the_device() -> None:
    plan = fsdp(chain(1), precision=Precision("bf16-mixed"))
    quarter = WHOLE  # bytes of a shard in fp32
    arrived = labelled(plan.stream, "weight shard from host")
    assert {size for _, _, size in arrived} == {quarter}
    assert {size for _, _, size in labelled(plan.stream, "all-gather input")} == {quarter // 2}
    # Shard in both types, while nothing else is there yet.
    stream = plan.stream
    first = int((stream.event_segment == 0).sum())
    assert list(live(stream)[first + 1 : first + 4] - BATCH) == [quarter, quarter + quarter // 2, quarter // 2]


def test_fsdp_gradients_leave_when_they_are_reduced() -> None:
    kept, left = (fsdp(chain(1, element_bytes=4), offload).stream for offload in (Offload.NONE, Offload.ALL))
    # The reduced shard is there in both while the gradient still is; the stored shard only without offload.
    assert peak(kept, 1, backward=True) - peak(left, 1, backward=True) == WHOLE


def test_hsdp_holds_what_it_sums_until_backward_ends() -> None:
    context = small_context(chain(element_bytes=4), offload=Offload.ALL, world_size=8, replicate=2, nodes=2)
    plan = HybridShardedDataParallel().rank(context)
    assert at_rest(plan.stream) == [BATCH] * 2
    reduced = labelled(plan.stream, "reduce-scatter output")
    assert sum(sign * size for _, sign, size in reduced) == 0
    assert max(int(n) for n in live(plan.stream)) >= 4 * WHOLE


# -- both --------------------------------------------------------------------------------------------------


def test_who_offers_it() -> None:
    able = [name for name, strategy in STRATEGIES.items() if Offload.ALL in strategy.offloads]
    assert able == ["fsdp", "fsdp1", "hsdp", "zero3"]


def test_qlora_is_offloaded_where_its_base_is_sharded() -> None:
    context = small_context(chain(), offload=Offload.ALL, peft=Peft("qlora"))
    strategy = FullyShardedDataParallel()
    assert strategy.refuses(context) is None
    whole = replace(context, settings=(("quant.storage", "uint8"),))
    assert "stored as integers are not offloaded" in (strategy.refuses(whole) or "")
    assert strategy.refuses(replace(context, peft=Peft("none"))) is None
    assert Zero3().refuses(context) is None
    assert "int8" in (Zero3().refuses(replace(context, settings=(("quant.base", "int8"),))) or "")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=2), min_size=1, max_size=6),
    st.integers(2, 9),
    st.sampled_from([Zero3(), FullyShardedDataParallel()]),
    st.integers(1, 3),
    st.sampled_from([Precision("fp32"), Precision("bf16-mixed")]),
)
def test_any_model_s_device_is_left_as_it_was_found(
    shapes: list[list[int]], world: int, strategy: Strategy, accumulation: int, precision: Precision
) -> None:
    trace = tiny_trace([tuple(shape) for shape in shapes])
    base: RankContext = small_context(
        trace,
        world_size=world,
        accumulation_steps=accumulation,
        precision=precision,
        settings=(("zero.param_persistence_threshold", "0"), ("zero.reduce_bucket_size", "1000")),
    )
    plan, kept = (strategy.rank(replace(base, offload=offload)) for offload in (Offload.ALL, Offload.NONE))
    first, second = at_rest(plan.stream)
    assert live(plan.stream).min() >= 0
    assert first == second < at_rest(kept.stream)[0]
    assert measure(plan.stream, 1).at_rest_bytes >= first
    assert plan.host_bytes > kept.host_bytes == 0
