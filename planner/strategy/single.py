"""One device, the whole model on it."""

from gpu_plan.planner.memory.optimizer.steps import LocalTensor
from gpu_plan.planner.memory.stream import StreamBuilder
from gpu_plan.planner.speed.model import OptimizerWork
from gpu_plan.planner.strategy.base import (
    Offload,
    RankContext,
    RankPlan,
    autocast_regime,
    keep_gradients,
    place_whole_model,
    place_workspaces,
    replica_regime,
    whole_parameters,
)
from gpu_plan.planner.strategy.optimizer_step import optimizer_work, place_optimizer, with_paged_state
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack


class Single:
    """No distribution: torch and accelerate as they are on one device."""

    name = "single"
    title = "single GPU"
    zero_stage: int | None = None
    offloads: tuple[Offload, ...] = (Offload.NONE,)

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
        return autocast_regime(precision, stack, peft)

    def refuses(self, context: RankContext) -> str | None:
        return "there is more than one GPU" if context.world_size > 1 else None

    def rank(self, context: RankContext) -> RankPlan:
        builder = StreamBuilder(context.trace, context.accumulation_steps)
        work = place_replica(builder, context)
        plan = RankPlan(stream=builder.build(), optimizer_work=work)
        return with_paged_state(plan, context, replica_tensors(context))


def replica_tensors(context: RankContext) -> list[LocalTensor]:
    """What the optimizer of a whole model steps."""
    return whole_parameters(context.trace, replica_regime(context).trained)


def place_replica(builder: StreamBuilder, context: RankContext, *, keep: bool = True) -> OptimizerWork:
    """A whole model with whole gradients and optimizer state; `keep` is false where gradients live elsewhere."""
    tensors = replica_tensors(context)
    place_whole_model(builder, replica_regime(context))
    place_workspaces(builder, context.capability)
    place_optimizer(builder, context, tensors)
    if keep:
        keep_gradients(builder, context.trace.parameters)
    return optimizer_work(
        context.optimizer,
        sum(tensor.numel for tensor in tensors),
        tensors[0].nbytes // max(1, tensors[0].numel) if tensors else 4,
        clipping=context.clipping,
    )


__all__ = ["Single", "optimizer_work", "place_replica", "replica_tensors"]
