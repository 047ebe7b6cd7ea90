"""ZeRO on modules that are not plain: leaves, weights used through views, lookups; and which rank stands highest."""

from dataclasses import replace

import numpy as np
import pytest

from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.strategy.kinds.zero1 import Zero1
from gpu_plan.planner.strategy.kinds.zero2 import Zero2
from gpu_plan.planner.strategy.kinds.zero3 import Zero3
from gpu_plan.planner.strategy.zero.stage3.gather import Coordinator
from gpu_plan.planner.strategy.zero.stage3.leaves import leaf_modules, leaf_of, leaf_parameters
from gpu_plan.planner.strategy.zero.stage3.partition import holders
from gpu_plan.planner.strategy.zero.stage3.storage import Limits
from gpu_plan.planner.strategy.zero.stage3.views import lookup_modules, recorded_exits, viewed_parameters
from gpu_plan.planner.strategy.zero.stage12.rank import plan_of_rank
from gpu_plan.planner.trace.events import Kind, ModuleLayout, StepTrace, numberless
from tests.support.gather_ledger import Ledger
from tests.support.live_bytes import live
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

SMALL_BUCKET = (("zero.reduce_bucket_size", "4096"), ("zero.param_persistence_threshold", "0"))


def experts(kind: str = "MixtralDecoderLayer") -> StepTrace:
    """An attention weight, then a router and a stack of experts below one `mlp`."""
    trace = tiny_trace([(64, 64), (4, 64), (4, 64, 32)], element_bytes=4)
    names = ["layers.0.attention", "layers.0.mlp.gate", "layers.0.mlp.experts"]
    parameters = [
        replace(parameter, name=f"{name}.weight", module=name)
        for parameter, name in zip(trace.parameters, names, strict=True)
    ]
    return replace(
        trace,
        modules=["", *names, "layers.0.mlp"],
        parameters=parameters,
        layout=ModuleLayout(blocks=("layers.0",), block_classes=(kind,)),
    )


def with_operators(trace: StepTrace, *operators: tuple[str, int]) -> StepTrace:
    """(operator, module) of the forward pass."""
    names = sorted({name for name, _ in operators})
    none = np.zeros(len(operators), np.float64)
    return replace(
        trace,
        operator_names=names,
        op_name=np.array([names.index(name) for name, _ in operators], np.int64),
        op_module=np.array([module for _, module in operators], np.int64),
        op_phase=np.zeros(len(operators), np.int64),
        op_flops_fixed=none,
        op_flops_per_sample=none,
    )


# -- leaves ------------------------------------------------------------------------------------------------


def test_a_mixture_that_deepspeed_lists_is_a_leaf() -> None:
    trace = experts()
    assert leaf_modules(trace) == {"layers.0.mlp"}
    assert leaf_parameters(trace) == {4: (1, 2)}
    assert leaf_of("layers.0.mlp.experts", frozenset({"layers.0.mlp"})) == "layers.0.mlp"
    assert leaf_of("layers.0.mlpx", frozenset({"layers.0.mlp"})) is None


@pytest.mark.parametrize("kind", ["LlamaDecoderLayer", "Qwen3DecoderLayer", "DeepseekV3DecoderLayer"])
def test_others_are_gathered_module_by_module(kind: str) -> None:
    assert leaf_modules(experts(kind)) == frozenset()
    assert leaf_parameters(experts(kind)) == {}


def test_a_listed_layer_without_experts_is_no_leaf() -> None:
    trace = experts()
    dense = replace(trace, modules=[name.replace("experts", "up_proj") for name in trace.modules])
    assert leaf_modules(dense) == frozenset()


def test_a_leaf_that_runs_holds_all_below_it() -> None:
    trace = experts()
    kind, subject = np.append(trace.kind, Kind.ENTER), np.append(trace.subject, 4)
    held = holders(replace(trace, kind=kind, subject=subject))
    assert held == {1: [0], 4: [1, 2]}


def test_what_nobody_reads_is_not_gathered() -> None:
    """ESM-2's contact head: never called, and without a gradient."""
    trace = tiny_trace([(64, 64), (8, 1)])
    without = ~((trace.subject == 2) & np.isin(trace.kind, (Kind.ENTER, Kind.EXIT)))
    uncalled = replace(trace, kind=trace.kind[without], subject=trace.subject[without])
    assert holders(uncalled) == {1: [0], 0: [1]}, "somebody reads it: its gradient comes"
    without = ~((uncalled.subject == 1) & (uncalled.kind == Kind.GRADIENT))
    assert holders(replace(uncalled, kind=uncalled.kind[without], subject=uncalled.subject[without])) == {1: [0]}


def test_copies_of_an_embedding_that_is_never_called_hold_it_in_its_place() -> None:
    """T5's `shared`: encoder and decoder look rows up in tied copies, the head multiplies by another one."""
    trace = tiny_trace([(512, 64), (64, 64)])
    names = ["shared", "layer", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head"]
    parameters = [
        replace(parameter, name=f"{name}.weight", module=name)
        for parameter, name in zip(trace.parameters, names[:2], strict=True)
    ]
    entered = [(Kind.ENTER, 0), *((Kind.ENTER, module) for module in (2, 3, 4, 5))]
    kind, subject = (np.array(column, np.int64) for column in zip(*entered, strict=True))
    trace = replace(
        with_operators(trace, ("embedding", 3), ("embedding", 4), ("mm", 2), ("mm", 5)),
        modules=["", *names],
        parameters=parameters,
        kind=kind,
        subject=subject,
        layout=ModuleLayout(input_embedding="shared"),
        op_flops_per_sample=np.array([0, 0, 2.0 * 64 * 64, 2.0 * 512 * 64]),
    )
    assert holders(trace) == {2: [1], 3: [0], 4: [0], 5: [0]}
    called = replace(trace, kind=np.append(kind, Kind.ENTER), subject=np.append(subject, 1))
    assert holders(called) == {1: [0], 2: [1], 5: [0]}


# -- views -------------------------------------------------------------------------------------------------


def test_stacked_weights_of_products_are_used_through_views() -> None:
    trace = experts()
    assert viewed_parameters(with_operators(trace, ("_grouped_mm", 3), ("mm", 1))) == {2}
    assert viewed_parameters(with_operators(trace, ("aten::bmm", 3))) == {2}
    assert viewed_parameters(with_operators(trace, ("convolution", 3))) == frozenset()
    assert viewed_parameters(trace) == frozenset()
    name = numberless(trace.parameters[1].name)
    assert viewed_parameters(replace(trace, layout=replace(trace.layout, viewed=(name,)))) >= {1}


def test_the_kernel_of_a_convolution_that_is_never_called_is_used_through_a_view() -> None:
    """Qwen3-Next's causal convolution takes `conv1d.weight.squeeze(1)`."""
    trace = experts()
    called = trace.subject[trace.kind == Kind.ENTER]
    assert 3 in called
    without = ~((trace.subject == 3) & (trace.kind == Kind.ENTER))
    uncalled = replace(trace, kind=trace.kind[without], subject=trace.subject[without])
    assert viewed_parameters(uncalled) == {2}


def test_lookups_are_told_by_their_operator() -> None:
    assert lookup_modules(with_operators(experts(), ("embedding", 1), ("mm", 2))) == {1}
    assert lookup_modules(experts()) == frozenset()


def test_the_forward_that_autograd_records_is_the_last_before_backward() -> None:
    """Of a forward, and of its repetition under checkpointing."""
    trace = tiny_trace([(4, 4)])
    position = next(p for p in range(len(trace.kind)) if trace.kind[p] == Kind.EXIT and trace.subject[p] == 1)
    assert position in recorded_exits(trace)
    again = next(p for p in range(len(trace.kind)) if trace.kind[p] == Kind.BACKWARD_ENTER and trace.subject[p] == 1)
    kind = np.insert(trace.kind, again, [Kind.ENTER, Kind.EXIT])
    subject = np.insert(trace.subject, again, [1, 1])
    found = recorded_exits(replace(trace, kind=kind, subject=subject))
    assert position not in found
    assert again + 1 in found
    early = np.delete(kind, again + 1), np.delete(subject, again + 1)  # the recomputation stops inside the module
    found = recorded_exits(replace(trace, kind=early[0], subject=early[1]))
    assert not {position, again, again + 1} & found


@pytest.mark.parametrize("viewed", [True, False])
def test_autograd_keeps_what_it_has_a_view_of_until_the_modules_backward(viewed: bool) -> None:
    ledger = Ledger()
    coordinator: Coordinator[int] = Coordinator(
        numel=[100],
        owned={1: [0]},
        persistent=frozenset(),
        limits=Limits(prefetch=0, max_live=10**9, max_reuse=0, world_size=2),
        storage=ledger,
        viewed=frozenset({0}) if viewed else frozenset(),
    )
    for _ in range(3):
        coordinator.begin(0)
        coordinator.fetch(0, 1, backward=False)
        coordinator.release(0, 1, backward=False, recorded=True)
        assert ledger.elements == (100 if viewed else 0)
        coordinator.fetch(0, 1, backward=True)
        assert ledger.elements == (200 if viewed else 100)  # gathered again beside what autograd holds
        coordinator.release(0, 1, backward=True)
        coordinator.finish_backward(0)
        assert ledger.elements == 0
    coordinator.begin(0)
    coordinator.fetch(0, 1, backward=False)
    coordinator.release(0, 1, backward=False)  # the first forward of a checkpointed block
    assert ledger.elements == 0
    coordinator.fetch(0, 1, backward=False)
    coordinator.release(0, 1, backward=False, recorded=True, recomputed=True)  # what it repeats is kept, view or not
    assert ledger.elements == 100
    coordinator.forget_view(0, 0)
    assert ledger.elements == 0


def test_zero3_stands_higher_where_experts_are_kept() -> None:
    plain = experts("LlamaDecoderLayer")
    kept = with_operators(plain, ("_grouped_mm", 3))

    def forward_end(trace: StepTrace) -> int:
        stream = Zero3().rank(small_context(trace, settings=SMALL_BUCKET, world_size=2)).stream
        inside = np.flatnonzero((stream.event_segment == 1) & ~stream.event_in_backward)
        return int(live(stream)[inside[-1]])

    assert forward_end(kept) - forward_end(plain) == 4 * 64 * 32 * 4


# -- the rank that is shown ----------------------------------------------------------------------------------


def test_the_rank_that_owns_the_end_of_the_model_is_a_rival_under_zero2() -> None:
    trace = tiny_trace([(64, 64)] * 4 + [(64, 65)] + [(64, 64)] * 3, element_bytes=4)
    context = small_context(trace, settings=SMALL_BUCKET, world_size=2)
    plan = Zero2().rank(context)
    (other,) = plan.other_ranks
    assert any("rank 0 of 2" in note for note in plan.notes)
    assert any("rank 1 of 2" in note for note in other.notes)
    alone = plan_of_rank(context, 1, partitioned=True)
    assert np.array_equal(alone.stream.event_tensor, other.stream.event_tensor)
    assert measure(other.stream, 1).peak_allocated_bytes < measure(plan.stream, 1).peak_allocated_bytes


def test_gradients_that_go_out_after_backward_make_no_rival() -> None:
    context = small_context(tiny_trace([(64, 64)] * 8, element_bytes=4), settings=SMALL_BUCKET, world_size=2)
    assert Zero1().rank(context).other_ranks == ()
    overlapped = replace(context, settings=(*SMALL_BUCKET, ("zero.overlap_comm", "true")))
    assert len(Zero1().rank(overlapped).other_ranks) <= 1
