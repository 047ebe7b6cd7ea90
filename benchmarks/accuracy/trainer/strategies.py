"""Strategies as the Trainer's runs had them: types as the row declares them, FSDP1 of torch before 2.8."""

from dataclasses import dataclass

from benchmarks.accuracy.trainer.setup import Setup
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.strategy.base import (
    MASTER,
    RankContext,
    RankPlan,
    Strategy,
    keep_gradients,
    place_whole_model,
    place_workspaces,
    whole_parameters,
)
from gpu_plan.planner.strategy.kinds.fsdp1 import FullyShardedDataParallel1
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.strategy.optimizer_step import optimizer_work, place_optimizer, with_paged_state
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack


def strategy_of(setup: Setup) -> Strategy:
    """What judges the row."""
    if setup.strategy == "single":
        return DeclaredSingle(_whole_regime(setup))
    if setup.strategy == "fsdp1":
        kind = FsdpBesideAdapters if setup.fuses_adapters else FsdpOfTheRuns
        return kind(setup.checkpoints_outside and setup.reentrant)
    return STRATEGIES[setup.strategy]


def regime_of(setup: Setup, strategy: Strategy) -> Regime:
    """Types in which the row's step is traced."""
    return strategy.regime(setup.precision, Stack.TRAINER, setup.peft)


def _whole_regime(setup: Setup) -> Regime:
    """One process: as loaded; peft since 0.12 makes adapters fp32 (tuners_utils.py: cast_adapter_dtype)."""
    weights = MASTER if setup.upcasts_rest else setup.weights
    adapters = MASTER if setup.lora is not None and weights != MASTER else None
    return Regime(
        weights=weights,
        trainable_weights=adapters,
        autocast=setup.autocast,
        outputs_to_fp32=setup.autocast is not None,
    )


@dataclass(frozen=True, slots=True)
class DeclaredSingle(Single):
    """One device, every parameter in the type that was traced."""

    declared: Regime

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
        return self.declared

    def rank(self, context: RankContext) -> RankPlan:
        builder = StreamBuilder(context.trace, context.accumulation_steps)
        # One group: transformers knew norms by class then (pytorch_utils.py: ALL_LAYERNORM_LAYERS), where Mistral's is
        # not named, and adapters have none.
        tensors = whole_parameters(context.trace, self.declared.trained)
        place_whole_model(builder, self.declared)
        place_workspaces(builder, context.capability)
        place_optimizer(builder, context, tensors)
        keep_gradients(builder, context.trace.parameters)
        elements = sum(tensor.numel for tensor in tensors)
        each = tensors[0].nbytes // max(1, tensors[0].numel) if tensors else 4
        work = optimizer_work(context.optimizer, elements, each, clipping=context.clipping)
        return with_paged_state(RankPlan(stream=builder.build(), optimizer_work=work), context, tensors)


class FsdpOfTheRuns(FullyShardedDataParallel1):
    """FSDP1 under torch 2.4."""

    broadcast_waits = True

    def __init__(self, checkpointed_outside: bool) -> None:
        self.checkpointed_outside = checkpointed_outside


class FsdpBesideAdapters(FsdpOfTheRuns):
    """The same with the adapters among `ignored_modules` (fms-acceleration fused-ops-and-kernels utils.py:
    lora_adapters_switch_ddp_from_fsdp): every rank holds them whole."""

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
        compute = precision.compute_dtype
        return Regime(
            weights=compute, trainable_weights=MASTER, autocast=compute, outputs_to_fp32=True, buffers_follow=True
        )

    def ignored(self, context: RankContext) -> frozenset[int]:
        return frozenset(index for index, p in enumerate(context.trace.parameters) if p.trainable)
