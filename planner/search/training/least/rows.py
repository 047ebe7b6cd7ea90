"""What a rank at least keeps of rows that do not divide, where another cut than that of the shards takes a part too.

FSDP2 cuts rows alone and pads them (torch distributed/fsdp/_fully_shard/_fsdp_param.py: FSDPParam._init_sharded_param):
of eight experts each of sixteen ranks gets one. Two ranks that share a copy cut the other dimension, and of eight
shards each has half an expert. Where both cut rows nothing is won: a part of a part, each rounded up, is no less than
the part of all ranks rounded up.
"""

from dataclasses import replace
from typing import Protocol

from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.trace.events import ParameterInfo, StepTrace
from gpu_plan.planner.trace.provider import Provider
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.units import ceil_div


class Judge(Protocol):
    """What is asked of the evaluator."""

    provider: Provider

    def variant(self, family: Family) -> StepVariant:
        """The trace that a family replays."""
        ...

    def context(self, family: Family, accumulation_steps: int, trace: StepTrace) -> RankContext:
        """What the family's strategy is asked."""
        ...


def least_states(judge: Judge, alone: Family, degree: int) -> RankPlan | None:
    """The states that a rank of `alone` has at least where `degree` of its shards cut the other dimension; None where
    those are what it has."""
    trace = judge.provider.static_trace(judge.variant(alone).regime)
    context = judge.context(alone, 1, trace)
    cut = cut_across(trace, context.shard_ranks, degree)
    return None if cut is trace else alone.strategy.rank(replace(context, trace=cut))


def cut_across(trace: StepTrace, shards: int, degree: int) -> StepTrace:
    """A trace of the same parameters, none larger in one of `shards` ranks than where `degree` of these cut it, too, by
    rows or by columns; the same trace where none is smaller then."""
    parameters = [_least(parameter, shards, degree) for parameter in trace.parameters]
    same = all(one is other for one, other in zip(parameters, trace.parameters, strict=True))
    return trace if same else replace(trace, parameters=parameters)


def _least(parameter: ParameterInfo, shards: int, degree: int) -> ParameterInfo:
    if len(parameter.shape) < 2 or shards % degree:
        return parameter
    rows, columns, *rest = parameter.shape
    alone, fewer = ceil_div(rows, shards), ceil_div(rows, shards // degree)
    narrow = max(1, columns // degree)
    if fewer * narrow >= alone * columns:
        return parameter
    return replace(parameter, shape=(fewer * shards, narrow, *rest))
