"""Kinds of rank of a plan, and those that compute a copy together with the first and take more."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.unlike.places import shard_kinds, tensor_places
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.provider import Provider
from gpu_plan.planner.trace.variant import StepVariant


class Judge(Protocol):
    """What is asked of the evaluator."""

    provider: Provider

    def variant(self, family: Family) -> StepVariant:
        """The trace that a family replays."""
        ...

    def context(self, family: Family, accumulation_steps: int, trace: StepTrace) -> RankContext:
        """What the family's strategy is asked."""
        ...

    def evaluating(self, family: Family, plan: RankPlan) -> RankPlan:
        """The same rank, which evaluates between its steps where the job does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Ranks that take the same."""

    places: tuple[int, ...]
    """Of one replica."""
    context: RankContext
    """Of the first of them."""


def kinds_of(judge: Judge, family: Family, batch: Batch) -> Iterator[Kind]:
    """Of one replica, the kind of rank 0 first. Traces every rank of a group that gets another part."""
    variant, spec = judge.variant(family), judge.provider.spec()
    first = judge.provider.trace(variant, batch.micro_batch)
    steps = min(batch.accumulation_steps, 2)
    for rank, members in _groups(family, spec, first).items():
        trace = first if rank == 0 else judge.provider.trace(replace(variant, rank=rank), batch.micro_batch)
        context = judge.context(family, steps, trace)
        ranks = context.world_size // context.replicate
        for places in shard_kinds(context, members, ranks):
            yield Kind(places=places, context=replace(context, place=places[0]))


def parts(judge: Judge, family: Family, batch: Batch) -> list[StepVariant]:
    """The traces that `kinds_of` replays, that of rank 0 first."""
    variant = judge.variant(family)
    if family.tensor_parallel == 1:
        return [variant]
    first = judge.provider.trace(variant, batch.micro_batch)
    return [replace(variant, rank=rank) for rank in _groups(family, judge.provider.spec(), first)]


def _groups(family: Family, spec: ModelSpec, trace: StepTrace) -> dict[int, tuple[int, ...]]:
    if family.tensor_parallel == 1:
        return {0: (0,)}
    return tensor_places(spec, trace, family.tensor_parallel)


def other_tensor_ranks(judge: Judge, family: Family, batch: Batch, trace: StepTrace) -> tuple[RankPlan, ...]:
    """Ranks that compute a copy together with the first and cannot get as large a part: what they pad may stand beside
    it. What is sharded beyond is never smaller on rank 0: every tensor of another rank is as large as its own or less,
    at the same event."""
    traits = family.strategy.traits
    if family.tensor_parallel == 1 or not trace.num_tensors or not (traits.tensor_parallel and traits.every_rank):
        return ()
    variant, steps = judge.variant(family), min(batch.accumulation_steps, 2)
    found = []
    for rank in _groups(family, judge.provider.spec(), trace):
        if rank:
            other = judge.provider.trace(replace(variant, rank=rank), batch.micro_batch)
            context = replace(judge.context(family, steps, other), place=rank)
            found.append(judge.evaluating(family, family.strategy.rank(context)))
    return tuple(found)
