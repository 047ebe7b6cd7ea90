"""FSDP2 × pipeline parallel: several pipelines with samples of their own, each stage sharded over them."""

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
    name="fsdp_pp",
    title="FSDP2 × pipeline",
    place=15,
    moving_parts=5,
    engine=Engine.PIPELINE,
    stage=3,
    one_device=False,
    replicates=False,
    pipeline_parallel="some",
    unpiped="fsdp",
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset({"dtype.reduce", "pipeline.split"}),
    flags=(),
    packages=(),
    wrapped_by=frozenset(),
    seen_as=("PipelineStage of FSDPModule",),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(regions=None, note="what torch.compile makes of a stage is not in this version"),
    host=Host(loads="slices", saves="shards"),
    checkpoint=Checkpoint(form=Form.STAGES, made_from=()),
    ladder=Ladder(then=(), offloads=()),
    faults=frozenset(),
)


class ShardedPipeline(HasTraits):
    """Pipelines with samples of their own, each stage sharded over the ranks that hold it."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.fsdp2.rank import sharded_regime

        return sharded_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.fsdp2.rank import refuses_optimizer
        from gpu_plan.planner.strategy.pipeline.notes import refuses_pipeline

        return refuses_pipeline(context) or refuses_optimizer(context.optimizer)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.pipeline.sharded import piped_shard

        return piped_shard(context)


STRATEGY = ShardedPipeline()
