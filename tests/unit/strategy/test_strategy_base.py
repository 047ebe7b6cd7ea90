"""What strategies share: sizes, types of a regime, which parameters an optimizer sees, and as what."""

from dataclasses import replace

import pytest

from gpu_plan.planner.dtypes import BITS
from gpu_plan.planner.strategy.base import autocast_regime, kept_wide, nbytes, parameter_role, whole_parameters
from gpu_plan.planner.strategy.kinds.ddp import DistributedDataParallel
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.trace.events import ModuleLayout, StepTrace
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.optimizers.local_tensor import Role
from gpu_plan.planner.workload.training import Optimizer, Precision, Stack
from tests.support.live_bytes import at_load
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

NUMEL = 256


def unused(*indices: int) -> StepTrace:
    """Three weights, all trainable; those of `indices` get no gradient in the step."""
    trace = tiny_trace([(64, 4)] * 3, frozen=indices)
    return replace(trace, parameters=[replace(parameter, trainable=True) for parameter in trace.parameters])


@pytest.mark.parametrize(
    ("numel", "dtype", "size"), [(3, "uint8", 3), (3, "bfloat16", 6), (1, "float32", 4), (0, "int8", 0)]
)
def test_sizes_are_whole_bytes(numel: int, dtype: str, size: int) -> None:
    assert nbytes(numel, dtype) == size
    assert all(bits % 8 == 0 for bits in BITS.values()), "rounding up begins to matter: test it"


def test_what_gets_no_gradient_is_not_stepped() -> None:
    """torch's optimizers pass over parameters whose .grad is None: no state is ever made for them."""
    assert [tensor.name for tensor in whole_parameters(unused(1), "float32")] == ["m0.weight", "m2.weight"]
    nothing = replace(unused(), kind=unused().kind[:0], subject=unused().subject[:0])
    assert len(whole_parameters(nothing, "float32")) == 3, "a trace without a step says nothing about gradients"
    work = [Single().rank(small_context(trace, world_size=1)).optimizer_work for trace in (unused(), unused(1))]
    assert [each.elements for each in work] == [3 * NUMEL, 2 * NUMEL]


def test_embedding_and_head_are_told_apart() -> None:
    layout = ModuleLayout(input_embedding="m0", output_embedding="m2")
    trace = replace(unused(), layout=layout)
    roles = [parameter_role(trace, parameter) for parameter in trace.parameters]
    assert roles == [Role.EMBEDDING, Role.HIDDEN, Role.HEAD]


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16-mixed", 4), ("fp16-mixed", 4), ("bf16", 2)])
def test_weights_and_what_an_optimizer_moves_are_of_the_precisions_type(precision: str, size: int) -> None:
    context = small_context(unused(), world_size=1, precision=Precision(precision))
    plan = Single().rank(context)
    assert at_load(plan.stream) == size * 3 * NUMEL
    wide = Single().rank(replace(context, precision=Precision("fp32"))).optimizer_work
    moved = plan.optimizer_work.parameter_bytes_read_written
    assert moved * 4 == wide.parameter_bytes_read_written * size


def test_clipping_moves_every_gradient_three_times_more() -> None:
    plain, clipped = (
        DistributedDataParallel().rank(small_context(unused(), clipping=clips)).optimizer_work
        for clips in (False, True)
    )
    extra = clipped.parameter_bytes_read_written - plain.parameter_bytes_read_written
    assert extra == 3 * 4 * 3 * NUMEL


def test_a_regime_kept_wide_says_what_is() -> None:
    regime = autocast_regime(Precision("bf16-mixed"), Stack.ACCELERATE)
    assert (regime.weights, regime.autocast, regime.trained) == ("float32", "bfloat16", "float32")
    pure = Regime(weights="bfloat16")
    assert kept_wide(pure, None, Precision("bf16")) == pure
    assert kept_wide(pure, "all", Precision("bf16")).weights == "float32"
    norms = kept_wide(pure, "norms", Precision("bf16"))
    assert (norms.weights, norms.upcast) == ("bfloat16", ("norms",))


def test_paged_state_is_counted_in_the_nodes_ram() -> None:
    """bitsandbytes keeps it in managed memory: outside of torch's counters, and on the host in the end."""
    large = tiny_trace([(512, 512)])
    for strategy, world in ((Single(), 1), (DistributedDataParallel(), 4)):
        context = small_context(large, world_size=world, optimizer=Optimizer("paged-adamw-8bit"))
        plan = strategy.rank(context)
        assert plan.host_bytes >= 2 * 512 * 512
        assert any("managed memory" in note for note in plan.notes)
