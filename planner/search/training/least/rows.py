"""What a rank at least keeps of rows that do not divide, where another cut than that of the shards takes a part too.

FSDP2 cuts rows alone and pads them (torch distributed/fsdp/_fully_shard/_fsdp_param.py: FSDPParam._init_sharded_param):
of eight experts each of sixteen ranks gets one. Two ranks that share a copy cut the other dimension, and of eight
shards each has half an expert. Where both cut rows nothing is won: a part of a part, each rounded up, is no less than
the part of all ranks rounded up.
"""

from collections import Counter
from dataclasses import replace
from math import prod
from typing import Protocol

from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.provider import Provider
from gpu_plan.planner.trace.remembered import of_trace
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


Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The states of a family alone, of whose shards some cut the other dimension."""

    family: Family
    context: RankContext
    """Of a rank without that cut."""
    degree: int
    """Shards that make it."""

    @property
    def is_less(self) -> bool:
        """Whether a rank has less of anything."""
        return any(self._least(shape) != shape for shape in {one.shape for one in self.context.trace.parameters})

    @property
    def stepped(self) -> float:
        """Part of the elements that a rank steps without the cut, padding counted."""
        shards = self.context.shard_ranks
        whole = cut = 0
        for shape, count in _stepped(self.context.trace):
            whole += count * _shard(shape, shards)
            cut += count * _shard(self._least(shape), shards)
        return cut / whole if whole else 1.0

    def peak_bytes(self, micro_batch: int) -> int:
        """Of what stands between steps and of the step."""
        trace = cut_across(self.context.trace, self.context.shard_ranks, self.degree)
        plan = self.family.strategy.rank(replace(self.context, trace=trace))
        return measure(plan.stream, micro_batch).peak_allocated_bytes

    def _least(self, shape: Shape) -> Shape:
        return least_shape(shape, self.context.shard_ranks, self.degree)


def cut_of(judge: Judge, alone: Family, degree: int) -> Cut:
    """`degree` of the shards of `alone` cut the other dimension."""
    trace = judge.provider.static_trace(judge.variant(alone).regime)
    return Cut(family=alone, context=judge.context(alone, 1, trace), degree=degree)


@of_trace
def _stepped(trace: StepTrace) -> tuple[tuple[Shape, int], ...]:
    """Of the parameters that are trained, and how many have each."""
    return tuple(Counter(one.shape for one in trace.parameters if one.trainable and not one.tied_to).items())


def _shard(shape: Shape, shards: int) -> int:
    return ceil_div(shape[0], shards) * prod(shape[1:]) if shape else 1


def cut_across(trace: StepTrace, shards: int, degree: int) -> StepTrace:
    """A trace of the same parameters, none larger in one of `shards` ranks than where `degree` of these cut it, too, by
    rows or by columns."""
    parameters = [replace(one, shape=least_shape(one.shape, shards, degree)) for one in trace.parameters]
    return replace(trace, parameters=parameters)


def least_shape(shape: Shape, shards: int, degree: int) -> Shape:
    """The same shape where nothing is won."""
    if len(shape) < 2 or shards % degree:
        return shape
    rows, columns, *rest = shape
    alone, fewer = ceil_div(rows, shards), ceil_div(rows, shards // degree)
    narrow = max(1, columns // degree)
    return shape if fewer * narrow >= alone * columns else (fewer * shards, narrow, *rest)
