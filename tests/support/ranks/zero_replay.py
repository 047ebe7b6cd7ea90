"""The planner's stream of every rank of a ZeRO case, not only of the worst."""

from collections.abc import Sequence

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.strategy.zero.stage12.rank import plan_of_rank
from tests.support.ranks.case import RankCase
from tests.support.ranks.comparison import RankFigures, replayed
from tests.support.ranks.replay import STRATEGIES, context_of


def streams_of(case: RankCase, world_size: int) -> list[RankStream]:
    """By rank."""
    context = context_of(case, world_size)
    if case.strategy == "zero3":
        return [STRATEGIES["zero3"].rank(context).stream] * world_size
    partitioned = case.strategy == "zero2"
    return [plan_of_rank(context, rank, partitioned=partitioned).stream for rank in range(world_size)]


def shown_peak(case: RankCase, world_size: int) -> int:
    """The peak that a report shows: of the worst of the ranks that the strategy names."""
    plan = STRATEGIES[case.strategy].rank(context_of(case, world_size))
    return max(peak(replayed(rank.stream, case.micro_batch)) for rank in (plan, *plan.other_ranks))


def peak(figures: RankFigures) -> int:
    """Most live bytes in forward, backward and step."""
    return max(*(max(p.forward_peak, p.backward_peak) for p in figures.passes), *figures.step_peaks)


def highest(figures: Sequence[RankFigures]) -> int:
    """The same over all ranks."""
    return max(map(peak, figures))
