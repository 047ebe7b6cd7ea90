"""What is tried around plans that fit: gathered weights that stay, and fewer layers checkpointed than all."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpu_plan.planner.search.ranking.rules import LONGER, Ranking, standing
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.workload.training import Checkpointing

RESHARD = "fsdp.reshard_after_forward"
EVERY = "checkpoint.every"
DISTANCES = (2, 4)
"""Of so many layers one is checkpointed: with the next distance less is computed again and more is kept."""


def unresharded(evaluator: Evaluator, families: Sequence[Family], plans: Sequence[StepJudgement]) -> Iterator[Family]:
    """Families that fit, with what is gathered for forward kept for backward: more memory, fewer gathers, no trace."""
    if RESHARD in dict(evaluator.workload.settings):
        return
    for family in families:
        open_to_it = RESHARD in family.strategy.traits.settings and family.offload is Offload.NONE
        if open_to_it and family.copy_ranks == 1 and _fits(family, plans):
            yield replace(family, settings=((RESHARD, "false"),))


def sparser(
    evaluator: Evaluator, families: Sequence[Family], ranking: Ranking, plans: Sequence[StepJudgement]
) -> Iterator[Family]:
    """The kind that is first, with one layer in several checkpointed, where all are in a plan that fits.

    `plans` is read as it grows: where one distance does not fit, the next keeps more. A distance takes a trace.
    """
    if EVERY in dict(evaluator.workload.settings) or evaluator.workload.checkpointing is not None:
        return
    fitting = [plan for plan in plans if standing(plan) == 0]
    if not fitting:
        return
    first = ranking.ordered(fitting)[0].family
    for family in families:
        if family.checkpointing is not Checkpointing.FULL or family.copy_ranks > 1:
            continue
        if replace(family, checkpointing=first.checkpointing) != replace(first, settings=()):
            continue
        fewer = family
        for distance in DISTANCES:
            if _fits(fewer, plans):
                fewer = replace(family, settings=((EVERY, str(distance)),))
                yield fewer


def too_slow(
    evaluator: Evaluator, family: Family, cuts: Sequence[Batch], ranking: Ranking, plans: Sequence[StepJudgement]
) -> str | None:
    """Why fewer checkpointed layers are not traced: were nothing computed again, and were there room for it, a sample
    would hardly take less than in the fastest plan that is known. None where it might."""
    if EVERY not in dict(family.settings):
        return None
    fitting = [plan for plan in plans if standing(plan) == 0]
    whole = replace(family, settings=())
    largest = max(plan.batch.micro_batch for plan in fitting if replace(plan.family, settings=()) == whole)
    provider = evaluator.provider
    if isinstance(provider, TraceProvider) and provider.ships(evaluator.variant(whole), largest):
        return "it would take a trace of its own, where the others are shipped: --set checkpoint.every asks for it"
    kept = replace(family, checkpointing=Checkpointing.NONE, settings=())
    times = list(_times(evaluator, kept, [batch for batch in cuts if batch.micro_batch <= largest], ranking))
    fastest = ranking.fastest(fitting)
    if times and min(times) * LONGER < ranking.counted(fastest)[0]:
        return None
    return f"hardly faster than {fastest.title} even if nothing were computed again"


def _times(evaluator: Evaluator, family: Family, cuts: Sequence[Batch], ranking: Ranking) -> Iterator[float]:
    for batch in cuts:
        try:
            yield ranking.counted(evaluator.judge_uncounted(family, batch))[0]
        except NotTraceableError:
            return  # larger than any shipped trace


def _fits(family: Family, plans: Sequence[StepJudgement]) -> bool:
    return any(plan.family == family and standing(plan) == 0 for plan in plans)
