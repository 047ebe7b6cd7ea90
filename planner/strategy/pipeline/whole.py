"""Stages that stand whole on each rank: alone, or as replicas whose gradients DDP averages.

Under DDP only the last micro batch's backward reduces (torch/distributed/pipelining/stage.py:
backward_maybe_with_nosync).
"""

from dataclasses import replace

from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import RankContext, RankPlan, replica_regime
from gpu_plan.planner.strategy.buckets import place_buckets
from gpu_plan.planner.strategy.optimizer_step import with_paged_state
from gpu_plan.planner.strategy.pipeline.builder import PipelineBuilder
from gpu_plan.planner.strategy.pipeline.notes import pipeline_notes
from gpu_plan.planner.strategy.replica import place_replica, replica_tensors


def piped_rank(context: RankContext) -> RankPlan:
    """A rank whose stages nobody else holds."""
    return _planned(context, replicated=False)


def piped_replica(context: RankContext) -> RankPlan:
    """A rank whose stages others hold too, with other samples."""
    return _planned(context, replicated=True)


def _planned(context: RankContext, *, replicated: bool) -> RankPlan:
    assert context.pipeline is not None
    builder = PipelineBuilder(context.trace, context.pipeline)
    work = place_replica(builder, context)
    reduce: tuple[Collective, ...] = ()
    if replicated:
        reduce = tuple(
            Collective(
                kind="all_reduce",
                bytes=sum(sizes),
                overlap=True,
                phase="backward",
                per="step",
                ranks=context.shard_ranks,
            )
            for sizes in place_buckets(builder, replica_regime(context).trained)
        )
    plan = RankPlan(stream=builder.build(), collectives=reduce, optimizer_work=work)
    plan = with_paged_state(plan, context, replica_tensors(context))
    return replace(plan, notes=(*plan.notes, *pipeline_notes(context)))
