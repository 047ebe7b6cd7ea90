"""Megatron-core: tensor, pipeline, context and expert parallel with its own model, schedules and distributed optimizer.

The model is Megatron-core's GPTModel in place of the user's class: Megatron-LM or Megatron-Bridge runs it.
"""

from typing import TYPE_CHECKING

from gpu_plan.planner.strategy.traits import (
    Checkpoint,
    Compiled,
    Engine,
    Form,
    HasTraits,
    Host,
    Ladder,
    Offload,
    Searched,
    Traits,
)
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack

if TYPE_CHECKING:
    from gpu_plan.planner.strategy.base import RankContext, RankPlan
    from gpu_plan.planner.trace.variant import Regime

TRAITS = Traits(
    name="megatron",
    title="Megatron",
    place=18,
    moving_parts=6,
    engine=Engine.MEGATRON,
    stage=1,
    one_device=False,
    replicates=False,
    own_model="megatron-core",
    cpu_ranks=False,
    offloads=(Offload.NONE,),
    settings=frozenset(
        {
            "megatron.sequence_parallel",
            "megatron.distributed_optimizer",
            "megatron.context_comm",
            "megatron.overlap",
            "megatron.optimizer_instances",
            "megatron.group_size",
            "megatron.recompute_method",
            "megatron.recompute_layers",
            "megatron.cross_entropy",
            "megatron.gradient_fusion",
            "megatron.activation_fusion",
            "megatron.deallocate_outputs",
            "megatron.grad_dtype",
            "megatron.precision_aware",
            "megatron.moments_dtype",
            "megatron.mtp_layers",
            "megatron.fp8_recipe",
            "megatron.fp8_params",
            "megatron.expert_tensor",
            "megatron.dispatcher",
            "megatron.router_dtype",
            "megatron.grouped_experts",
            "megatron.expert_capacity",
            "megatron.expert_load",
            "megatron.first_layers",
            "megatron.last_layers",
            "megatron.embedding_counts",
            "megatron.loss_counts",
        }
    ),
    flags=(),
    packages=("megatron-core",),
    wrapped_by=frozenset(),
    seen_as=("megatron.core.distributed.DistributedDataParallel",),
    searched=Searched(over=None, alone=()),
    compiled=Compiled(regions=None, note="Megatron-core compiles its own fused functions, which are counted so"),
    host=Host(loads="slices", saves="shards"),
    checkpoint=Checkpoint(form=Form.MEGATRON, made_from=()),
    ladder=Ladder(then=(), offloads=()),
    faults=frozenset(),
)


class Megatron(HasTraits):
    """Megatron-core's own model over tensor, pipeline, context, expert and data parallel ranks."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.trace.variant import Regime

        return Regime(weights=precision.compute_dtype)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.megatron.notes import refuses_job

        return refuses_job(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.megatron.planned import planned_rank

        return planned_rank(context)


STRATEGY = Megatron()
