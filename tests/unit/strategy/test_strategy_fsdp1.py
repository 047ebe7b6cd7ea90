"""FSDP1 against arithmetic on a step small enough to follow by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.fsdp1.flat import first_shard, flat_units
from gpu_plan.planner.strategy.fsdp1.rank import POST_BACKWARD_STREAM, PRE_UNSHARD_STREAM, UNSHARD_STREAM
from gpu_plan.planner.strategy.kinds.fsdp1 import FullyShardedDataParallel1
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Peft, Precision, Stack
from tests.support.tiny_trace import ACTIVATION, tiny_trace

BLOCK = 4096 * 4096
BF16 = Regime(weights="bfloat16")
SHAPES = ((1024, 4096), (4096, 4096), (4096, 4096), (4096, 4096), (1024, 4096))
"""An embedding, three blocks and a head; what is no block belongs to the root."""


def blocks(shapes: tuple[tuple[int, ...], ...] = SHAPES, **changes: object) -> StepTrace:
    trace = tiny_trace(shapes, **changes)  # type: ignore[arg-type]
    names = [f"m{i}" for i in range(1, len(shapes) - 1)]
    return replace(
        trace, layout=replace(trace.layout, blocks=names, input_embedding="m0", output_embedding=f"m{len(shapes) - 1}")
    )


def context(trace: StepTrace | None = None, **changes: object) -> RankContext:
    base = RankContext(
        trace=trace or blocks(),
        precision=Precision("bf16-mixed"),
        optimizer=Optimizer("adamw-fused"),
        stack=Stack.ACCELERATE,
        clipping=True,
        checkpointing=Checkpointing.NONE,
        accumulation_steps=1,
        world_size=8,
        capability=None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def run(given_context: RankContext) -> tuple[RankPlan, MemoryProfile]:
    plan = FullyShardedDataParallel1().rank(given_context)
    return plan, measure(plan.stream, 1)


P = sum(np.prod(shape) for shape in SHAPES)
ROOT = 2 * 1024 * 4096
SLACK = 64 * 512


@pytest.mark.parametrize("world", [2, 8, 64])
def test_masters_moments_and_the_last_gradient_rest_over_the_world(world: int) -> None:
    assert run(context(world_size=world))[1].at_rest_bytes == pytest.approx(16 * P / world, abs=SLACK)


def test_pure_bf16_rests_on_half() -> None:
    found = run(context(precision=Precision("bf16")))[1]
    assert found.at_rest_bytes == pytest.approx(8 * P / 8, abs=SLACK)


def test_backward_peaks_when_a_block_gathers_its_gradients() -> None:
    """Where the second block in backward ends: root and two blocks gathered, its gradient single and flat, the root's
    head gradient, the block before's fp32 shard, weights and moments; activations are small here.
    """
    found = run(context(world_size=8))[1]
    gathered = 2 * (ROOT + 2 * BLOCK)
    gradients = 2 * (2 * BLOCK + ROOT // 2) + 4 * BLOCK // 8
    standing = 12 * P // 8
    assert found.peak_allocated_bytes == pytest.approx(gathered + gradients + standing, abs=SLACK + 5 * ACTIVATION)


def test_accumulation_keeps_whole_flat_gradients() -> None:
    once, more = (run(context(accumulation_steps=steps))[1].peak_allocated_bytes for steps in (1, 2))
    # All 16-bit gradients stand from the micro step before; the peak moves to the first block, with no shard yet.
    assert more - once == pytest.approx(2 * P - 4 * BLOCK // 8, abs=SLACK)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("precision", [Precision("fp32"), Precision("bf16-mixed"), Precision("bf16")])
@pytest.mark.parametrize("optimizer", [Optimizer("adamw"), Optimizer("adafactor"), Optimizer("adamw-8bit")])
def test_everything_taken_is_given_back(steps: int, precision: Precision, optimizer: Optimizer) -> None:
    trace = blocks(element_bytes=4 if precision == Precision("fp32") else 2)
    plan, _ = run(context(trace, accumulation_steps=steps, precision=precision, optimizer=optimizer))
    stream = plan.stream
    counts = np.bincount(stream.event_tensor, weights=stream.event_sign, minlength=len(stream.fixed))
    assert set(np.unique(counts)) <= {0.0, 1.0}
    live = stream.live(1)
    ends = [int((stream.event_segment <= segment).sum()) - 1 for segment in stream.step_segments]
    assert live.min() >= 0
    assert live[ends[0]] == live[ends[1]]


def test_frozen_blocks_make_no_gradient_shard() -> None:
    frozen = blocks(frozen=(0, 1, 2))
    plan, _ = run(context(frozen))
    shards = [label for label in plan.stream.labels if label == "gradient shard"]
    assert len(shards) == 2 * 2  # one block and the root, in both iterations


def test_flat_parameters_are_aligned_and_padded_to_the_world() -> None:
    trace = blocks(((3,), (5,), (7, 3), (2,)))
    units = {unit.module: unit for unit in flat_units(trace, BF16, 4)}
    assert units["m1"].flat_numel == 8
    assert units["m2"].flat_numel == 24
    assert units[""].offsets == (0, 8)
    assert units[""].flat_numel == 12


@given(
    st.lists(st.integers(1, 200), min_size=3, max_size=6),
    st.sampled_from([2, 3, 8, 17]),
)
@settings(max_examples=60, deadline=None)
def test_shards_cover_the_flat_parameter(sizes: list[int], world: int) -> None:
    trace = blocks(tuple((size,) for size in sizes))
    units = flat_units(trace, BF16, world)
    assert sum(len(unit.parameters) for unit in units) == len(sizes)
    for unit in units:
        assert unit.shard_numel * world == unit.flat_numel
        assert unit.flat_numel >= sum(trace.parameters[i].numel for i in unit.parameters)
    assert sum(tensor.numel for tensor in first_shard(trace, units, "float32")) <= sum(u.shard_numel for u in units)


def test_refusals_name_the_reason() -> None:
    strategy = FullyShardedDataParallel1()
    assert "one GPU" in str(strategy.refuses(context(world_size=1)))
    assert "Muon" in str(strategy.refuses(context(optimizer=Optimizer("muon"))))
    assert strategy.refuses(context()) is None


def test_paged_state_is_said_and_counted_on_the_host() -> None:
    plan, _ = run(context(optimizer=Optimizer("paged-adamw-8bit")))
    assert plan.host_bytes == pytest.approx(2 * P / 8, abs=64)
    assert any("managed memory" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("label", "stream"),
    [
        ("low-precision shard", PRE_UNSHARD_STREAM),
        ("unsharded flat parameter", UNSHARD_STREAM),
        ("reduce-scatter output", POST_BACKWARD_STREAM),
        ("gradient shard", POST_BACKWARD_STREAM),
        ("unsharded flat gradient", 0),
        ("flat parameter shard", 0),
    ],
)
def test_what_side_streams_allocate_comes_from_their_own_pools(label: str, stream: int) -> None:
    found = run(context())[0].stream
    own = found.cuda_stream[len(found.cuda_stream) - len(found.labels) :]
    streams = {int(of) for of, name in zip(own, found.labels, strict=True) if name == label}
    assert streams == {stream}


def adapted(**changes: object) -> RankContext:
    """A frozen model of which the last leaf module is trained."""
    return replace(context(blocks(frozen=(0, 1, 2, 3)), peft=Peft("lora")), **changes)  # type: ignore[arg-type]


def test_every_trained_leaf_is_a_unit_of_its_own_beside_frozen_ones() -> None:
    regime = FullyShardedDataParallel1().regime(Precision("bf16-mixed"), Stack.TRAINER, Peft("lora"))
    units = {unit.module: unit for unit in flat_units(adapted().trace, regime, 8, Peft("lora"))}
    assert set(units) == {"m1", "m2", "m3", "m4", ""}
    assert [name for name, unit in units.items() if unit.trainable] == ["m4"]


def test_frozen_shards_stay_16_bit_and_only_adapters_get_a_cast_copy() -> None:
    stream = run(adapted())[0].stream
    labels = list(zip(stream.labels, stream.label_modules, strict=True))
    assert {module for label, module in labels if label == "low-precision shard"} == {"m4"}
    stored = stream.fixed[len(stream.fixed) - len(labels) :]
    sizes = {m: int(b) for (name, m), b in zip(labels, stored, strict=True) if name == "flat parameter shard"}
    assert sizes["m1"] == 2 * BLOCK // 8
    assert sizes["m4"] == 4 * 1024 * 4096 // 8


def test_a_frozen_block_stays_until_its_input_has_its_gradient_and_is_gathered_once_a_direction() -> None:
    plan, _ = run(adapted())
    gathered = [
        m for label, m in zip(plan.stream.labels, plan.stream.label_modules, strict=True) if "unsharded" in label
    ]
    assert gathered.count("m2") == 2 * 2
    counts = np.bincount(plan.stream.event_tensor, weights=plan.stream.event_sign, minlength=len(plan.stream.fixed))
    assert set(np.unique(counts)) <= {0.0, 1.0}


def test_adapters_refuse_what_torch_refuses() -> None:
    strategy = FullyShardedDataParallel1()
    assert strategy.refuses(adapted()) is None
    assert "without autocast" in str(strategy.refuses(adapted(stack=Stack.PLAIN)))
    assert strategy.refuses(adapted(stack=Stack.PLAIN, precision=Precision("bf16"))) is None
    trace = adapted().trace
    bias = replace(trace.parameters[4], name="m4.bias")
    odd = replace(trace, parameters=[*trace.parameters[:4], bias])
    assert "m4.bias together with frozen parameters" in str(strategy.refuses(adapted(trace=odd)))


def test_packed_weights_take_their_bytes_in_the_type_of_the_flat_parameter() -> None:
    trace = adapted().trace
    packed = replace(trace.parameters[1], dtype="uint8", shape=(BLOCK // 2, 1))
    trace = replace(trace, parameters=[trace.parameters[0], packed, *trace.parameters[2:]])
    units = {unit.module: unit for unit in flat_units(trace, BF16, 8, Peft("qlora"))}
    assert units["m1"].flat_numel == BLOCK // 4
    assert units["m2"].flat_numel == BLOCK
    told = run(adapted(peft=Peft("qlora"), trace=trace))[0].notes
    assert any("bnb_4bit_quant_storage=torch.bfloat16" in note for note in told)


def test_a_loop_is_told_to_set_pefts_policy_that_the_trainer_sets_itself() -> None:
    assert any("fsdp_auto_wrap_policy" in note for note in run(adapted())[0].notes)
    assert not any("fsdp_auto_wrap_policy" in note for note in run(adapted(stack=Stack.TRAINER))[0].notes)


def test_ignored_parameters_are_whole_on_every_rank() -> None:
    class BesideAdapters(FullyShardedDataParallel1):
        def ignored(self, context: RankContext) -> frozenset[int]:
            return frozenset(index for index, p in enumerate(context.trace.parameters) if p.trainable)

    asked = adapted()
    trained = sum(p.numel for p in asked.trace.parameters if p.trainable)
    sharded, beside = run(asked)[1], measure(BesideAdapters().rank(asked).stream, 1)
    # Weights and both moments are whole; gradients go at the end of the step instead of with the next forward.
    more = 12 * trained - 16 * trained // asked.world_size
    assert beside.at_rest_bytes - sharded.at_rest_bytes == pytest.approx(more, abs=SLACK)


def test_shards_from_before_the_upcast_go_with_the_first_reshard() -> None:
    stream = run(context())[0].stream
    load = stream.event_segment == 0
    live = np.cumsum(stream.event_sign * stream.sizes(1)[stream.event_tensor])
    assert live[load][-1] == pytest.approx((2 + 4) * P / 8, abs=SLACK)
    assert measure(stream, 1).at_rest_bytes == pytest.approx(16 * P / 8, abs=SLACK)
