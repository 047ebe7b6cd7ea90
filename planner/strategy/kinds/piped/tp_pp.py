"""Tensor × pipeline parallel: groups of ranks compute each stage of one pipeline together."""

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
    name="tp_pp",
    title="TP × pipeline",
    place=16,
    moving_parts=5,
    engine=Engine.PIPELINE,
    stage=0,
    one_device=False,
    replicates=False,
    tensor_parallel="some",
    untensored="pp",
    pipeline_parallel="all",
    unpiped="tp",
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset({"pipeline.split"}),
    flags=(),
    packages=(),
    wrapped_by=frozenset(),
    seen_as=("PipelineStage of DTensor",),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(regions=None, note="what torch.compile makes of a stage is not in this version"),
    host=Host(loads="slices", saves="shards"),
    checkpoint=Checkpoint(form=Form.STAGES, made_from=()),
    ladder=Ladder(then=(), offloads=()),
    faults=frozenset(),
)


class TensorPipeline(HasTraits):
    """One pipeline, each of its stages over a group of ranks."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.pipeline.regime import stage_regime

        return stage_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.pipeline.notes import refuses_shared_pipeline

        return refuses_shared_pipeline(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.pipeline.whole import piped_rank

        return piped_rank(context)


STRATEGY = TensorPipeline()
