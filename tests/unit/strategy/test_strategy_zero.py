"""ZeRO-1, ZeRO-2 and ZeRO-3 against the published formulas, and against themselves."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.strategy.base import RankContext, RankPlan, Strategy
from gpu_plan.planner.strategy.kinds.zero1 import Zero1
from gpu_plan.planner.strategy.kinds.zero2 import Zero2
from gpu_plan.planner.strategy.kinds.zero3 import Zero3
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.strategy.zero.common import optimizer_groups, pinned_bytes, zero_config
from gpu_plan.planner.strategy.zero.stage12.flat import FlatGroup, flatten_copies, worst_rank
from gpu_plan.planner.strategy.zero.stage12.rank import flat_groups
from gpu_plan.planner.trace.events import Category, StepTrace
from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Precision, Stack
from tests.support.tiny_trace import tiny_trace

STAGES: tuple[Strategy, ...] = (Zero1(), Zero2(), Zero3())
BIG = tiny_trace([(4096, 4096), (4096,), (8192, 4096), (4096, 8192), (4096,)])
P = sum(parameter.numel for parameter in BIG.parameters)
BUCKET = 4_000_000
SETTINGS = (("zero.reduce_bucket_size", str(BUCKET)), ("zero.param_persistence_threshold", "0"))


def context(trace: StepTrace = BIG, world: int = 8, **changes: object) -> RankContext:
    base = RankContext(
        trace=trace,
        precision=Precision("bf16-mixed"),
        optimizer=Optimizer("adamw"),
        stack=Stack.ACCELERATE,
        clipping=True,
        checkpointing=Checkpointing.NONE,
        accumulation_steps=1,
        world_size=world,
        capability=None,
        settings=SETTINGS,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def profile(strategy: Strategy, given_context: RankContext) -> tuple[RankPlan, MemoryProfile]:
    plan = strategy.rank(given_context)
    return plan, measure(plan.stream, 1)


def rest(strategy: Strategy, world: int, **changes: object) -> int:
    return profile(strategy, context(world=world, **changes))[1].at_rest_bytes


SLACK = 64 * 512
"""Rounding to allocator blocks and padding, for a handful of tensors."""


@pytest.mark.parametrize("world", [1, 2, 8, 64])
@pytest.mark.parametrize("stage", [0, 1])
def test_stages_1_and_2_keep_2_bytes_and_12_over_the_world(stage: int, world: int) -> None:
    assert rest(STAGES[stage], world) == pytest.approx(2 * P + 12 * P / world, abs=SLACK)


@pytest.mark.parametrize("world", [1, 2, 8, 64])
def test_stage_3_keeps_16_over_the_world_and_its_bucket(world: int) -> None:
    assert rest(STAGES[2], world) == pytest.approx(16 * P / world + 2 * BUCKET, abs=SLACK)


@pytest.mark.parametrize("world", [1, 2, 8])
def test_fp32_keeps_masters_beside_the_weights(world: int) -> None:
    trace = tiny_trace([p.shape for p in BIG.parameters], element_bytes=4)
    for strategy in STAGES[:2]:
        assert rest(strategy, world, trace=trace, precision=Precision("fp32")) == pytest.approx(
            4 * P + 12 * P / world, abs=SLACK
        )


@pytest.mark.parametrize("world", [16, 64])
def test_a_higher_stage_never_rests_on_more(world: int) -> None:
    one, two, three = (rest(strategy, world) for strategy in STAGES)
    assert three < two == one


@pytest.mark.parametrize("world", [8, 64])
def test_a_higher_stage_peaks_lower(world: int) -> None:
    one, two, three = (profile(s, context(world=world))[1].peak_allocated_bytes for s in STAGES)
    assert three < two < one


def test_stage_1_holds_whole_gradients_when_backward_ends() -> None:
    used = context(world=64)
    one, two = (profile(strategy, used)[1].at_peak[Category.GRADIENTS] for strategy in STAGES[:2])
    # On top comes the buffer for what the partition touches, made before the last gradients are reduced.
    assert 2 * P <= one <= 2 * P + 2 * worst_rank(flat_groups(used)).touched + SLACK
    assert two < one


def test_step_of_stage_2_holds_16_bit_flat_and_fp32_gradients_at_once() -> None:
    plan, measured = profile(STAGES[1], context(world=1, optimizer=Optimizer("adamw-fused")))
    assert measured.at_peak[Category.GRADIENTS] == pytest.approx(2 * P + 2 * P + 4 * P, abs=SLACK)
    assert plan.stream.live(1).min() >= 0


def test_accumulation_under_stage_2_adds_a_second_partition() -> None:
    once, more = (
        profile(Zero2(), context(world=1, accumulation_steps=steps))[1].phase_peaks[Phase.BACKWARD] for steps in (1, 4)
    )
    # The second micro step fills a partition of its own beside the first one's.
    assert more - once == pytest.approx(2 * P, abs=SLACK)


@pytest.mark.parametrize(
    ("strategy", "offload"), [(strategy, offload) for strategy in STAGES for offload in strategy.offloads]
)
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("stack", [Stack.ACCELERATE, Stack.TRAINER])
def test_every_gradient_is_gone_and_both_iterations_rest_alike(
    strategy: Strategy, accumulation: int, offload: Offload, stack: Stack
) -> None:
    used = context(world=4, accumulation_steps=accumulation, offload=offload, stack=stack, hidden_size=64)
    plan, measured = profile(strategy, used)
    live = plan.stream.live(1)
    assert live.min() >= 0
    # Only inputs and the weights differ from what stood after the first step: nothing is lost or freed twice.
    ends = [int((plan.stream.event_segment <= segment).sum()) - 1 for segment in plan.stream.step_segments]
    assert live[ends[0]] == live[ends[1]] == measured.at_rest_bytes
    states = measured.at_peak[Category.OPTIMIZER_STATE]
    assert (states == 0) == (offload is not Offload.NONE)


@pytest.mark.parametrize("strategy", STAGES, ids=lambda s: s.name)
def test_offload_moves_masters_and_state_to_host(strategy: Strategy) -> None:
    world = 4
    plan, measured = profile(strategy, context(world=world, offload=Offload.OPTIMIZER))
    largest = max(p.numel for p in BIG.parameters)
    stays = 2 * P / world + 2 * BUCKET if strategy.traits.shards_model else 2 * P + 2 * largest
    assert measured.at_rest_bytes == pytest.approx(stays, abs=SLACK)
    assert 18 * P / world <= plan.host_bytes <= 2 * 18 * P / world + 4 * P
    assert plan.optimizer_work.on_host
    copied = {(c.kind, c.phase): c.bytes * c.count for c in plan.collectives if c.per == "step"}
    assert copied["host_to_device", "step"] == pytest.approx(2 * P / world, abs=SLACK)
    assert copied["device_to_host", "backward"] == pytest.approx(4 * P / world, abs=SLACK)


def test_pageable_host_memory_is_not_rounded_up() -> None:
    exact = (
        Zero1().rank(context(offload=Offload.OPTIMIZER, settings=(*SETTINGS, ("zero.pin_memory", "false")))).host_bytes
    )
    largest = max(parameter.numel for parameter in BIG.parameters)
    assert exact == pytest.approx(18 * P / 8 + 2 * largest, abs=SLACK)


@pytest.mark.parametrize(("size", "taken"), [(0, 0), (1, 1), (4096, 4096), (4097, 8192)])
def test_pinned_memory_comes_in_powers_of_two(size: int, taken: int) -> None:
    assert pinned_bytes(size, True) == taken
    assert pinned_bytes(size, False) == size


def volume(plan: RankPlan, kind: str, phase: str) -> int:
    return sum(c.bytes * c.count for c in plan.collectives if c.kind == kind and c.phase == phase)


def test_traffic_is_what_theory_says() -> None:
    one, two, three = (strategy.rank(context()) for strategy in STAGES)
    for plan in (one, two):
        assert volume(plan, "all_reduce", "backward") == 2 * P
        assert volume(plan, "all_gather", "step") == pytest.approx(2 * P, abs=SLACK)
    assert {c.per for c in one.collectives} == {"step"}
    assert {c.per for c in two.collectives if c.kind == "all_reduce"} == {"micro_step"}
    assert volume(three, "reduce_scatter", "backward") == pytest.approx(2 * P, abs=SLACK)
    forward, backward = (volume(three, "all_gather", phase) for phase in ("forward", "backward"))
    # The model is smaller than max_reuse_distance: what forward gathered is still there in backward.
    assert (forward, backward) == (pytest.approx(2 * P, abs=SLACK), 0)


def test_parameters_out_of_reach_are_gathered_twice() -> None:
    short = (*SETTINGS, ("zero.max_reuse_distance", "0"), ("zero.prefetch_bucket_size", "0"))
    plan = Zero3().rank(context(settings=short))
    assert volume(plan, "all_gather", "backward") == pytest.approx(2 * P, abs=SLACK)
    assert not any(c.overlap for c in plan.collectives if c.kind == "all_gather")


def test_trainer_sizes_buckets_by_the_hidden_size() -> None:
    notes = Zero2().rank(context(stack=Stack.TRAINER, hidden_size=1000, settings=())).notes
    assert any("1000000 elements (auto" in note for note in notes)


def test_the_worst_rank_touches_the_most_elements() -> None:
    """Gradients are kept whole where a partition touches them: here rank 1 touches all three of ten, one and one."""
    worst = worst_rank([FlatGroup((0, 1, 2), (10, 1, 1), 2)])
    assert (worst.rank, worst.touched, worst.largest) == (1, 12, 4)
    alike = worst_rank([FlatGroup((0, 1), (6, 6), 2)])
    assert alike.rank == 0, "the first of equals"


def test_what_accelerate_fills_in_under_the_trainer() -> None:
    """transformers integrations/deepspeed.py: trainer_config_finalize; without it DeepSpeed's own defaults."""
    config = zero_config(context(stack=Stack.TRAINER, hidden_size=1001, settings=()), 3)
    assert (config.reduce_bucket, config.prefetch, config.persistence) == (1002001, 901800, 10010)
    plain = zero_config(context(settings=()), 3)
    assert (plain.reduce_bucket, plain.prefetch, plain.persistence) == (500_000_000, 50_000_000, 100_000)
    assert [zero_config(context(settings=()), stage).overlap for stage in (1, 2, 3)] == [False, False, True]


def test_the_trainer_decays_matrices_apart_from_vectors() -> None:
    """trainer.py: create_optimizer makes a group of what decays and one of the rest; accelerate keeps one."""
    matrices, vectors = [0, 2, 3], [1, 4]
    assert optimizer_groups(context(stack=Stack.TRAINER)) == [matrices, vectors]
    assert optimizer_groups(context()) == [[0, 1, 2, 3, 4]]


def test_frozen_parameters_have_neither_master_nor_gradient() -> None:
    trace = tiny_trace([p.shape for p in BIG.parameters], frozen=[2])
    frozen = trace.parameters[2].numel
    assert rest(Zero2(), 8, trace=trace) == pytest.approx(2 * P + 12 * (P - frozen) / 8, abs=SLACK)
    assert rest(Zero3(), 8, trace=trace) == pytest.approx((2 * P + 14 * (P - frozen)) / 8 + 2 * BUCKET, abs=SLACK)


def test_refusals_say_why() -> None:
    for strategy in STAGES:
        assert strategy.refuses(context()) is None
        assert "one GPU" in (strategy.refuses(context(world=1)) or "")
        assert strategy.refuses(context(world=1, offload=Offload.OPTIMIZER)) is None
        assert "CPU Adam" in (strategy.refuses(context(offload=Offload.OPTIMIZER, optimizer=Optimizer("sgd"))) or "")
        nothing = tiny_trace([(4, 4)], frozen=[0])
        assert "trainable" in (strategy.refuses(context(trace=nothing)) or "")


@pytest.mark.parametrize("bad", ["-1", "many", "inf", "0"])
def test_a_bucket_that_makes_no_sense_is_refused(bad: str) -> None:
    with pytest.raises(InputError, match=r"zero\.reduce_bucket_size"):
        Zero2().rank(context(settings=(("zero.reduce_bucket_size", bad),)))


GROUPS = st.builds(
    lambda sizes, world: FlatGroup(tuple(range(len(sizes))), tuple(sizes), world),
    st.lists(st.integers(1, 5000), min_size=1, max_size=30),
    st.integers(1, 40),
)


@given(GROUPS)
def test_shards_reassemble_to_the_whole_plus_padding(group: FlatGroup) -> None:
    slices = list(group.slices())
    for parameter, numel in zip(group.parameters, group.numels, strict=True):
        assert sum(part.numel for part in slices if part.parameter == parameter) == numel
    for rank in range(group.world_size):
        filled = sum(part.numel for part in slices if part.rank == rank)
        assert filled + group.padding(rank) == group.partition
    assert group.padded == group.partition * group.world_size
    assert group.padded - group.numel < 2 * group.world_size


@given(GROUPS)
def test_the_worst_rank_touches_at_least_its_share(group: FlatGroup) -> None:
    worst = worst_rank([group])
    assert worst.touched * group.world_size >= group.numel
    assert worst.touched == sum(dict(zip(group.parameters, group.numels, strict=True))[i] for i in worst.parameters)


@given(st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=12), min_size=1, max_size=3), st.integers(1, 40))
def test_the_worst_rank_is_the_one_that_counting_slice_by_slice_finds(sizes: list[list[int]], world: int) -> None:
    groups, first = [], 0
    for numels in sizes:
        groups.append(FlatGroup(tuple(range(first, first + len(numels))), (*numels[:-1], numels[-1] + 1), world))
        first += len(numels)
    touched, largest = [0] * world, [0] * world
    for group in groups:
        whole = dict(zip(group.parameters, group.numels, strict=True))
        for part in group.slices():
            touched[part.rank] += whole[part.parameter]
            largest[part.rank] = max(largest[part.rank], part.numel)
    rank = max(range(world), key=lambda index: (touched[index], largest[index], -index))
    worst = worst_rank(groups)
    assert (worst.rank, worst.touched, worst.largest) == (rank, touched[rank], largest[rank])
    assert worst.slices == tuple(tuple(part for part in group.slices() if part.rank == rank) for group in groups)


@given(GROUPS, st.integers(1, 10_000))
def test_copies_of_a_bucket_never_exceed_it(group: FlatGroup, limit: int) -> None:
    slices = list(group.slices())
    copies = flatten_copies(slices, limit)
    assert sum(copies) <= group.numel
    if group.world_size == 1:
        assert copies == [0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=2), min_size=1, max_size=6),
    st.integers(1, 9),
    st.sampled_from([(strategy, offload) for strategy in STAGES for offload in strategy.offloads]),
    st.integers(1, 3),
    st.integers(1, 4000),
)
def test_any_model_replays_without_losing_a_byte(
    shapes: list[list[int]], world: int, kind: tuple[Strategy, Offload], accumulation: int, bucket: int
) -> None:
    strategy, offload = kind
    trace = tiny_trace([tuple(shape) for shape in shapes])
    used = context(
        trace=trace,
        world=world,
        accumulation_steps=accumulation,
        offload=offload,
        settings=(("zero.reduce_bucket_size", str(bucket)), ("zero.param_persistence_threshold", "50")),
    )
    plan, measured = profile(strategy, used)
    live = plan.stream.live(1)
    ends = [int((plan.stream.event_segment <= segment).sum()) - 1 for segment in plan.stream.step_segments]
    assert live.min() >= 0
    assert live[ends[0]] == live[ends[1]]
    assert sum(measured.at_peak.values()) == measured.peak_allocated_bytes
    assert flat_groups(used)[0].numel == sum(parameter.numel for parameter in trace.parameters)
