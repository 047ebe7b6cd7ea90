"""What each strategy allocates and frees, in order, on three layers: as the engines' sources have it.

The sums of these orders are compared with real ranks in tests/accuracy/test_distributed*.py; here a step too many, too
few, too early, or on another stream, is named at once.
"""

from dataclasses import replace

import numpy as np
import pytest

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.buckets import BUCKET, FIRST_BUCKET, in_buckets
from gpu_plan.planner.strategy.kinds.ddp import DistributedDataParallel
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.strategy.kinds.fsdp1 import STRATEGY as FSDP1
from gpu_plan.planner.strategy.kinds.hsdp import HybridShardedDataParallel
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.strategy.kinds.zero1 import Zero1
from gpu_plan.planner.strategy.kinds.zero2 import Zero2
from gpu_plan.planner.strategy.kinds.zero3 import Zero3
from gpu_plan.planner.strategy.zero.common import pinned_bytes, zero_config
from gpu_plan.planner.strategy.zero.stage3.partition import partition
from gpu_plan.planner.trace.events import Category, Kind, ModuleLayout, StepTrace
from gpu_plan.planner.workload.training import Precision, Stack
from tests.support.live_bytes import at_load, labelled, live
from tests.support.rank_contexts import small_context
from tests.support.story import story
from tests.support.tiny_trace import tiny_trace


def chain(**changes: object) -> StepTrace:
    layout = ModuleLayout(blocks=("m0", "m1", "m2"), **changes)  # type: ignore[arg-type]
    return replace(tiny_trace([(64, 4)] * 3), layout=layout)


def mixed(**changes: object) -> RankContext:
    """Three blocks in bf16 over fp32 shards, on four ranks."""
    return small_context(chain(), precision=Precision("bf16-mixed"), stack=Stack.ACCELERATE, **changes)


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def passing(name: str) -> str:
    """A unit gathered: its shard cast, sent, and dropped."""
    return f"+all-gather input {name} @1\n+all-gather output {name} @1\n-all-gather input {name} @1\n"


def reduced(name: str, before: str = "") -> str:
    """A unit behind backward: resharded, its gradients reduced; the reduction before lets its input go."""
    freed = f"-reduce-scatter input {before}\n" if before else ""
    return f"""+gradient {name}.weight
        -unsharded parameters {name}
        {freed}+reduce-scatter input {name}
        +reduce-scatter output {name} @2
        +gradient shard {name} @2
        -reduce-scatter output {name} @2
        -gradient {name}.weight
        """


FSDP2_FORWARD = (
    "+input_ids\n"
    + passing("m0")
    + "+unsharded parameters m0\n-unsharded parameters m0\n"
    + passing("m1")
    + "+unsharded parameters m1\n-all-gather output m0 @1\n-unsharded parameters m1\n"
    + passing("m2")
    + "+unsharded parameters m2\n-all-gather output m1 @1\n-unsharded parameters m2\n-all-gather output m2 @1"
)
FSDP2_BACKWARD = (
    passing("m2")
    + "+unsharded parameters m2\n-all-gather output m2 @1\n"
    + passing("m1")  # while m2 computes
    + reduced("m2")
    + "+unsharded parameters m1\n-all-gather output m1 @1\n"
    + passing("m0")
    + reduced("m1", "m2")
    + "+unsharded parameters m0\n-all-gather output m0 @1\n"
    + reduced("m0", "m1")
    + "-reduce-scatter input m0"
)


def test_fsdp2_gathers_one_ahead_in_backward_and_reduces_behind() -> None:
    """_fsdp_param_group.py: unshard, wait_for_unshard, _backward_prefetch; _fsdp_collectives.py: foreach_reduce."""
    stream = FullyShardedDataParallel().rank(mixed()).stream
    assert story(stream, 1, backward=False) == lines(FSDP2_FORWARD)
    assert story(stream, 1, backward=True) == lines(FSDP2_BACKWARD)
    assert story(stream, 2)[-3:] == ["-gradient shard m2 @2", "-gradient shard m1 @2", "-gradient shard m0 @2"]


def test_fsdp2_sends_each_unit_in_both_passes_and_the_tail_once() -> None:
    """What stays gathered after forward (the last norm and the head) is not gathered again."""
    layout = ModuleLayout(blocks=("m0", "m1"), output_embedding="m2")
    plan = FullyShardedDataParallel().rank(replace(mixed(accumulation_steps=2), trace=replace(chain(), layout=layout)))
    sent = [(c.kind, c.phase, c.per, c.bytes, c.ranks) for c in plan.collectives]
    gathers = [("all_gather", phase, "micro_step", 2 * 256, 4) for phase in ("forward", "backward") * 2]
    assert sent[:5] == [*gathers, ("all_gather", "forward", "micro_step", 2 * 256, 4)]
    assert sent[5:] == [("reduce_scatter", "backward", "step", 2 * 256, 4)] * 3


def test_workspaces_of_cublas_come_with_the_first_product_of_each_thread() -> None:
    for strategy in (Single(), FullyShardedDataParallel(), FSDP1, Zero2(), Zero3()):
        context = replace(zero(chain(), capability=(9, 0)), world_size=1 if isinstance(strategy, Single) else 8)
        told = story(strategy.rank(context).stream, 1)
        assert [line for line in told if "cuBLAS" in line] == [
            "+cuBLAS workspace (forward)",
            "+cuBLAS workspace (backward)",
        ]


def test_fsdp2_reduces_nothing_before_the_last_micro_step() -> None:
    stream = FullyShardedDataParallel().rank(mixed(accumulation_steps=2)).stream
    first, last = story(stream, 1, backward=True), story(stream, 2, backward=True)
    assert not [line for line in first if "reduce" in line or line.startswith("-gradient")]
    assert [line for line in last if "gradient m2" in line] == ["+gradient m2.weight"] + ["-gradient m2.weight"] * 2


def test_hsdp_keeps_what_is_summed_until_the_last_sum() -> None:
    """AllReduceState holds each group's reduced shard until finalize_backward."""
    stream = HybridShardedDataParallel().rank(mixed(replicate=2, nodes=2)).stream
    told = [line for line in story(stream, 1, backward=True) if "output" in line and "reduce" in line]
    kept = [f"+reduce-scatter output {name} @2" for name in ("m2", "m1", "m0")]
    assert told == [*kept, *(line.replace("+", "-") for line in kept)]


def test_fsdp2_casts_for_a_gather_only_where_types_differ() -> None:
    wide = FullyShardedDataParallel().rank(small_context(chain(), stack=Stack.ACCELERATE)).stream
    assert story(wide, 1, backward=False)[1:3] == ["+all-gather output m0 @1", "+unsharded parameters m0"]


def test_fsdp2_keeps_what_is_frozen_in_the_type_of_the_computation() -> None:
    layout = ModuleLayout(blocks=("m0", "m1", "m2"))
    frozen = replace(tiny_trace([(64, 4)] * 3, frozen=[0, 1]), layout=layout)
    context = small_context(frozen, precision=Precision("bf16-mixed"), stack=Stack.ACCELERATE)
    plan = FullyShardedDataParallel().rank(context)
    assert at_load(plan.stream) == (2 + 2 + 4) * 64  # a quarter of 256 elements each
    assert [c.bytes for c in plan.collectives if c.kind == "reduce_scatter"] == [0, 0, 2 * 256]
    assert [line for line in story(plan.stream, 2) if "exp_avg " in line] == ["+adamw exp_avg m2.weight"]


def test_fsdp2_reduces_an_embedding_when_backward_ends() -> None:
    """Token ids have no gradient that would lead back out of it: _fsdp_state.py: _root_post_backward_final_callback."""
    layout = ModuleLayout(blocks=("m0", "m2"), input_embedding="m1")  # behind a tower of images
    context = replace(mixed(), trace=replace(chain(), layout=layout))
    told = story(FullyShardedDataParallel().rank(context).stream, 1, backward=True)
    assert told.index("+reduce-scatter input m2") < told.index("+gradient m0.weight")
    assert told.index("+reduce-scatter input m1") > told.index("+gradient m0.weight")


@pytest.mark.parametrize("strategy", [Single(), FullyShardedDataParallel(), FSDP1])
def test_clipping_takes_its_norms_before_the_optimizer_steps(strategy: Single) -> None:
    context = replace(mixed(clipping=True), world_size=1 if isinstance(strategy, Single) else 4)
    step = story(strategy.rank(context).stream, 2)
    norms = [index for index, line in enumerate(step) if "clip_grad_norm_" in line]
    assert norms[0] == 0
    assert norms == list(range(len(norms)))
    assert len(norms) % 2 == 0


ZERO = (("zero.param_persistence_threshold", "0"), ("zero.reduce_bucket_size", "300"))


def owned_by_the_root() -> StepTrace:
    """The last weight is the root's own, as a class token or a scale is."""
    trace = tiny_trace([(64, 4)] * 3)
    *rest, last = trace.parameters
    told = ~(np.isin(trace.kind, (Kind.BACKWARD_ENTER, Kind.BACKWARD_EXIT)) & (trace.subject == 0))  # as real traces
    columns = {"kind": trace.kind[told], "subject": trace.subject[told]}
    return replace(trace, parameters=[*rest, replace(last, module="", name="scale")], **columns)  # type: ignore[arg-type]


def zero(trace: StepTrace, **changes: object) -> RankContext:
    return small_context(
        trace, precision=Precision("bf16-mixed"), stack=Stack.ACCELERATE, world_size=8, settings=ZERO, **changes
    )


def test_zero_3_fetches_what_the_root_owns_when_backward_enters_it() -> None:
    """partitioned_param_coordinator.py: fetch_sub_module by the root's pre-backward hook, before any other."""
    stream = Zero3().rank(zero(owned_by_the_root())).stream
    assert story(stream, 1, backward=True) == lines(
        """+gathered weight @2
        +gradient scale
        -gradient scale
        +gathered weight @2
        +gradient m1.weight
        -gradient m1.weight
        -gathered weight @2
        +gathered weight @2
        +gradient m0.weight
        -gradient m0.weight
        -gathered weight @2
        -gathered weight @2"""
    )


def test_zero_3_lets_what_runs_backward_last_go_when_backward_ends() -> None:
    """Its inputs have no gradient whose hook would release it (parameter_offload.py: PostBackwardFunction)."""
    settings = (("zero.param_persistence_threshold", "0"), ("zero.reduce_bucket_size", "768"))
    told = story(Zero3().rank(replace(zero(tiny_trace([(63, 4)] * 3)), settings=settings)).stream, 1, backward=True)
    assert told[-2:] == ["-reduce-scatter input @1", "-gathered weight @2"]


@pytest.mark.parametrize(("threshold", "whole"), [(255, 0), (256, 3)])
def test_zero_3_keeps_weights_up_to_the_threshold_whole(threshold: int, whole: int) -> None:
    """partition_parameters.py: `param.ds_numel <= persistence_threshold`."""
    settings = (("zero.param_persistence_threshold", str(threshold)), ("zero.reduce_bucket_size", "300"))
    stream = Zero3().rank(replace(zero(tiny_trace([(64, 4)] * 3)), settings=settings)).stream
    assert story(stream, 2).count("+persistent weight") == whole


def test_zero_3_pads_shares_and_fills_sub_groups() -> None:
    """stage3.py: _create_fp16_sub_groups closes a group once it holds sub_group_size elements of this rank or more."""
    settings = (("zero.sub_group_size", "64"), ("zero.reduce_bucket_size", "300"))
    context = replace(zero(tiny_trace([(64, 4), (64, 4), (63, 4), (5, 1)])), settings=settings)
    parts = partition(context, zero_config(context, 3))
    assert parts.share == (32, 32, 32, 1), "252 elements over eight ranks are 32 to each"
    assert parts.sub_groups == ((0, 1), (2, 3))


def test_zero_3_before_training_and_in_its_step() -> None:
    stream = Zero3().rank(zero(tiny_trace([(64, 4)] * 3))).stream
    assert story(stream, 0) == lines(
        """+weight partitions
        +weights converted to fp32
        +fp32 weights, sub-group 0
        -weights converted to fp32
        +zero gradient at start
        -zero gradient at start
        +ZeRO reduce bucket
        +gradient partitions
        +weight gathered to hook its gradient
        -weight gathered to hook its gradient"""
    )
    # Of the largest share of a weight: 256 elements over eight ranks, in fp64.
    assert {size for _, _, size in labelled(stream, "gradient norm in fp64")} == {8 * 256 // 8}
    assert story(stream, 2)[:5] == lines(
        """+gradient norm in fp64
        -gradient norm in fp64
        +flat gradient partition
        +fp32 gradient partition
        -flat gradient partition"""
    )


def test_zero_2_reduces_bucket_by_bucket_and_closes_its_buffer_behind_backward() -> None:
    """stage_1_and_2.py: reduce_independent_p_g_buckets_and_remove_grads, independent_gradient_partition_epilogue."""
    stream = Zero2().rank(zero(tiny_trace([(64, 4)] * 3))).stream
    assert story(stream, 0)[-2:] == ["+zero gradient at start", "-zero gradient at start"]
    told = [line for line in story(stream, 1, backward=True) if "gradient" not in line]
    assert told == ["+ZeRO reduce bucket", *["+flattened bucket", "-flattened bucket"] * 3, "-ZeRO reduce bucket"]


def test_zero_with_overlap_fills_one_bucket_while_the_other_is_reduced() -> None:
    settings = (*ZERO, ("zero.overlap_comm", "true"))
    told = story(Zero2().rank(replace(zero(tiny_trace([(64, 4)] * 3)), settings=settings)).stream, 1)
    assert [line for line in told if "reduce bucket" in line] == ["+ZeRO reduce bucket"] * 2 + [
        "-ZeRO reduce bucket"
    ] * 2


def test_zero_flattens_no_partition_of_one_piece() -> None:
    """flatten([one tensor]) is a view of it."""
    whole = story(Zero2().rank(zero(tiny_trace([(64, 4)]))).stream, 2)
    assert "+flat gradient partition" not in whole
    assert "+flat gradient partition" in story(Zero2().rank(zero(tiny_trace([(64, 4)] * 3))).stream, 2)


def test_zero_1_lets_an_oversized_gradient_of_another_rank_go_behind_backward() -> None:
    """stage_1_and_2.py: partition_grads=False averages in place, and the gradients stay until the epilogue."""
    settings = (("zero.reduce_bucket_size", "100"), ("zero.overlap_comm", "true"))
    context = replace(zero(tiny_trace([(64, 4)] * 3)), settings=settings)
    ones, twos = (story(strategy.rank(context).stream, 1, backward=True) for strategy in (Zero1(), Zero2()))
    closing = ones.index("-ZeRO reduce bucket")
    assert [line for line in ones[:closing] if line.startswith("-gradient")] != []
    late = [line for line in ones[closing:] if line.startswith("-gradient")]
    assert late
    assert not [line for line in twos[twos.index("-ZeRO reduce bucket") :] if line.startswith("-gradient")]


@pytest.mark.parametrize(("reach", "reductions"), [(255, 3), (256, 3), (511, 3), (512, 2), (768, 1)])
def test_zero_reduces_when_the_next_gradient_has_no_room(reach: int, reductions: int) -> None:
    """A bucket may be filled to its last element; three weights of 256 elements."""
    settings = (("zero.param_persistence_threshold", "0"), ("zero.reduce_bucket_size", str(reach)))
    for strategy in (Zero2(), Zero3()):
        plan = strategy.rank(replace(zero(tiny_trace([(64, 4)] * 3)), settings=settings))
        kinds = {"all_reduce", "reduce_scatter"}
        assert sum(c.count for c in plan.collectives if c.kind in kinds and c.phase == "backward") == reductions


def flat(name: str) -> str:
    return f"+low-precision shard {name} @1\n+unsharded flat parameter {name} @2\n-low-precision shard {name} @1\n"


def flat_reduced(name: str) -> str:
    return f"""+gradient {name}.weight
        +unsharded flat gradient {name}
        -gradient {name}.weight
        -unsharded flat parameter {name} @2
        +reduce-scatter output {name} @3
        +gradient shard {name} @3
        -reduce-scatter output {name} @3
        -unsharded flat gradient {name}
        """


def test_fsdp1_prefetches_before_a_units_own_backward_and_keeps_gradient_shards_for_the_next_forward() -> None:
    """_runtime_utils.py: _pre_backward_hook, _prefetch_handle, _reduce_grad; forward's first unit prefetches none."""
    stream = FSDP1.rank(mixed()).stream
    backward = flat("m2") + flat("m1") + flat_reduced("m2") + flat("m0") + flat_reduced("m1") + flat_reduced("m0")
    assert story(stream, 1, backward=True) == lines(backward)
    forward = story(stream, 3, backward=False)
    assert forward[:5] == ["+input_ids", "-input_ids", *(f"-gradient shard m{index} @3" for index in (2, 1, 0))]
    assert forward[5:] == lines("".join(flat(f"m{i}") + f"-unsharded flat parameter m{i} @2\n" for i in range(3)))


def test_fsdp1_adds_later_micro_steps_to_the_gradient_of_the_first() -> None:
    """AccumulateGrad adds in place: what the later step made goes, what the first one made stays."""
    stream = FSDP1.rank(mixed(accumulation_steps=2)).stream
    second = stream.event_segment == 2
    traced = stream.trace.num_tensors * stream.num_passes
    flats = {traced + i for i, label in enumerate(stream.labels) if label == "unsharded flat gradient"}
    made = [t for t in stream.event_tensor[second & (stream.event_sign > 0)].tolist() if t in flats]
    freed = [t for t in stream.event_tensor[second & (stream.event_sign < 0)].tolist() if t in flats]
    assert freed[0] == made[0]
    assert freed[1] not in made


def test_fsdp1_sends_the_root_once_and_reduces_what_is_trained() -> None:
    layout = ModuleLayout(blocks=("m0", "m1"))
    frozen = replace(tiny_trace([(64, 4)] * 3, frozen=[0]), layout=layout)
    plan = FSDP1.rank(replace(mixed(), trace=frozen))
    sent = [(c.kind, c.phase) for c in plan.collectives]
    assert sent.count(("all_gather", "forward")) == 3
    assert sent.count(("all_gather", "backward")) == 2
    assert sent.count(("reduce_scatter", "backward")) == 2


def test_fsdp1_wraps_unit_by_unit_and_frees_what_it_flattened_last() -> None:
    first = story(FSDP1.rank(mixed()).stream, 0)[:7]
    assert first == lines(
        """+parameter, before it is flattened m0
        +broadcast of what rank 0 loaded m0
        -broadcast of what rank 0 loaded m0
        +flat parameter, before it is cut m0
        +flat parameter shard m0
        -flat parameter, before it is cut m0
        -parameter, before it is flattened m0"""
    )


def test_buckets_of_ddp_close_at_their_bound_and_not_behind_it() -> None:
    """reducer.cpp: compute_bucket_assignment_by_size, `size >= bucket_size_limit`."""
    assert in_buckets([FIRST_BUCKET, BUCKET, 4]) == [[FIRST_BUCKET], [BUCKET], [4]]
    assert in_buckets([FIRST_BUCKET - 4, 4, BUCKET - 4, 4]) == [[FIRST_BUCKET - 4, 4], [BUCKET - 4, 4]]
    assert in_buckets([FIRST_BUCKET - 4, BUCKET]) == [[FIRST_BUCKET - 4, BUCKET]]


def test_the_first_step_has_one_bucket_of_everything() -> None:
    stream = DistributedDataParallel().rank(small_context(tiny_trace([(400_000,)] * 2, element_bytes=4))).stream
    assert story(stream, 0)[-1] == "+DDP bucket"
    assert [line for line in story(stream, 1) if "bucket" in line] == []
    assert story(stream, 3)[2:5] == ["-DDP bucket", "+DDP bucket", "+DDP bucket"]


def test_a_tensor_is_named_by_its_category_until_the_optimizer_lets_it_go() -> None:
    stream = Single().rank(small_context(chain(), world_size=1)).stream
    assert story(stream, 2)[-3:] == ["-gradient m0.weight", "-gradient m1.weight", "-gradient m2.weight"]
    assert story(stream, 3) == ["+input_ids", "-input_ids", *(f"+gradient m{index}.weight" for index in (2, 1, 0))]
    assert int(live(stream)[-1]) == 3 * 256 * (4 + 8) + 64


def frees_nothing_twice(stream: RankStream) -> bool:
    freed = stream.event_tensor[stream.event_sign < 0].tolist()
    return len(freed) == len(set(freed))


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(
    "strategy", [Single(), DistributedDataParallel(), FullyShardedDataParallel(), FSDP1, Zero2(), Zero3()]
)
def test_nothing_is_freed_twice_nor_stands_negative(strategy: Single, steps: int) -> None:
    world = 1 if isinstance(strategy, Single) else 4
    context = replace(mixed(accumulation_steps=steps), world_size=world, settings=ZERO)
    stream = strategy.rank(context).stream
    assert frees_nothing_twice(stream)
    assert int(live(stream).min()) >= 0
    gradients = stream.category == list(Category).index(Category.GRADIENTS)
    assert gradients.any()


@pytest.mark.parametrize(
    ("size", "pinned", "taken"), [(0, True, 0), (1, True, 1), (3, True, 4), (4, True, 4), (5, True, 8), (5, False, 5)]
)
def test_pinned_memory_is_rounded_to_a_power_of_two(size: int, pinned: bool, taken: int) -> None:
    """c10/core/CachingHostAllocator.h: llvm::PowerOf2Ceil."""
    assert pinned_bytes(size, pinned) == taken


def test_fsdp2_holds_the_last_gather_of_forward_until_the_outputs_are_bound() -> None:
    """Nobody lets go of it before: what computes behind the last block computes beside it."""
    trace = replace(chain(), layout=ModuleLayout(blocks=("m0", "m1")))  # m2 is the root's own, and computes last
    stream = FullyShardedDataParallel().rank(replace(mixed(), trace=trace)).stream
    traced = trace.num_tensors * stream.num_passes
    outputs = {traced + i for i, label in enumerate(stream.labels) if label == "all-gather output"}
    forward = np.flatnonzero((stream.event_segment == 1) & ~stream.event_in_backward)
    freed = [int(at) for at in forward if stream.event_sign[at] < 0 and int(stream.event_tensor[at]) in outputs]
    last_activation = int(np.flatnonzero((stream.event_tensor == 2) & (stream.event_sign > 0))[0])
    assert freed[-1] > last_activation
