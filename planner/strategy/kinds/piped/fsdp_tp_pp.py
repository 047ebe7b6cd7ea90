"""FSDP2 × tensor × pipeline parallel: groups of ranks compute each stage together, and share it out among pipelines.

Built as torchtitan builds it (torchtitan/models/llama3/infra/parallelize.py: parallelize_llama on every part that
torchtitan/distributed/pipeline_parallel.py: pipeline_llm cuts): tensor parallel on a stage's own modules, FSDP2 on what
each rank then holds; the plan is the class's own, as transformers applies it.
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
    name="fsdp_tp_pp",
    title="FSDP2 × TP × pipeline",
    place=17,
    moving_parts=6,
    engine=Engine.PIPELINE,
    stage=3,
    one_device=False,
    replicates=False,
    tensor_parallel="some",
    untensored="fsdp_pp",
    pipeline_parallel="some",
    unpiped="fsdp_tp",
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset({"dtype.reduce", "pipeline.split"}),
    flags=(),
    packages=(),
    wrapped_by=frozenset(),
    seen_as=("PipelineStage of FSDPModule of DTensors",),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(regions=None, note="what torch.compile makes of a stage is not in this version"),
    host=Host(loads="slices", saves="shards"),
    checkpoint=Checkpoint(form=Form.STAGES, made_from=()),
    ladder=Ladder(then=(), offloads=()),
    faults=frozenset(),
)


class ShardedTensorPipeline(HasTraits):
    """Pipelines of groups of ranks, each rank's part of a stage sharded over the pipelines."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.fsdp2.rank import sharded_regime

        return sharded_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.fsdp2.rank import refuses_optimizer
        from gpu_plan.planner.strategy.pipeline.notes import refuses_shared_pipeline

        return refuses_shared_pipeline(context) or refuses_optimizer(context.optimizer)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.pipeline.sharded import piped_shard

        return piped_shard(context)


STRATEGY = ShardedTensorPipeline()
