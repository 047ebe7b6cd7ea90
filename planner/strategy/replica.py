"""A rank that holds the whole model: on one device, or one replica of several."""

from gpu_plan.planner.memory.optimizer.steps import LocalTensor
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.speed.model import OptimizerWork
from gpu_plan.planner.strategy.base import (
    RankContext,
    RankPlan,
    keep_gradients,
    place_whole_model,
    place_workspaces,
    replica_regime,
    whole_parameters,
)
from gpu_plan.planner.strategy.optimizer_step import optimizer_work, place_optimizer, with_paged_state


def single_rank(context: RankContext) -> RankPlan:
    """The plan of the only rank there is."""
    builder = StreamBuilder(context.trace, context.accumulation_steps)
    work = place_replica(builder, context)
    plan = RankPlan(stream=builder.build(), optimizer_work=work)
    return with_paged_state(plan, context, replica_tensors(context))


def replica_tensors(context: RankContext) -> list[LocalTensor]:
    """What the optimizer of a whole model steps."""
    trained, two_groups = replica_regime(context).trained, context.stack.traits.is_trainer
    return whole_parameters(context.trace, trained, two_groups=two_groups)


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
