"""What a rank at least keeps of rows that do not divide, where another cut than that of the shards takes a part too.

FSDP2 cuts rows alone and pads them (torch distributed/fsdp/_fully_shard/_fsdp_param.py: FSDPParam._init_sharded_param):
of eight experts each of sixteen ranks gets one. Two ranks that share a copy cut the other dimension, and of eight
shards each has half an expert. Where both cut rows nothing is won: a part of a part, each rounded up, is no less than
the part of all ranks rounded up.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.fsdp2.units import shard
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The states of a family alone, of whose shards some cut the other dimension."""

    family: Family
    context: RankContext
    whole: StepTrace
    """The same without that cut."""

    @property
    def is_less(self) -> bool:
        """Whether a rank has less of anything."""
        return self.context.trace is not self.whole

    @property
    def stepped(self) -> float:
        """Part of the elements that a rank steps without the cut, padding counted."""
        shards = self.context.shard_ranks
        whole, cut = (_stepped(trace, shards) for trace in (self.whole, self.context.trace))
        return cut / whole if self.is_less and whole else 1.0

    def peak_bytes(self, micro_batch: int) -> int:
        """Of what stands between steps and of the step."""
        return measure(self.family.strategy.rank(self.context).stream, micro_batch).peak_allocated_bytes


def cut_of(judge: Judge, alone: Family, degree: int) -> Cut:
    """`degree` of the shards of `alone` cut the other dimension."""
    whole = judge.provider.static_trace(judge.variant(alone).regime)
    context = judge.context(alone, 1, whole)
    return Cut(
        family=alone, context=replace(context, trace=cut_across(whole, context.shard_ranks, degree)), whole=whole
    )


def _stepped(trace: StepTrace, shards: int) -> int:
    return sum(shard(one, shards).shard_numel for one in trace.parameters if one.trainable and not one.tied_to)


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
