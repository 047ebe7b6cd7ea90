"""DDP × pipeline parallel: several pipelines with samples of their own, each stage's gradients averaged by DDP."""

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
    name="ddp_pp",
    title="DDP × pipeline",
    place=14,
    moving_parts=5,
    engine=Engine.PIPELINE,
    stage=0,
    one_device=False,
    replicates=False,
    pipeline_parallel="some",
    unpiped="ddp",
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset({"dtype.params", "pipeline.split"}),
    flags=(),
    packages=(),
    wrapped_by=frozenset(),
    seen_as=("PipelineStage of DistributedDataParallel",),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(regions=None, note="what torch.compile makes of a stage is not in this version"),
    host=Host(loads="slices", saves="shards"),
    checkpoint=Checkpoint(form=Form.STAGES, made_from=()),
    ladder=Ladder(then=(), offloads=()),
    faults=frozenset(),
)


class ReplicatedPipeline(HasTraits):
    """Pipelines with samples of their own, their stages whole on each rank."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.pipeline.regime import stage_regime

        return stage_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.pipeline.notes import refuses_pipeline

        return refuses_pipeline(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.pipeline.whole import piped_replica

        return piped_replica(context)


STRATEGY = ReplicatedPipeline()
