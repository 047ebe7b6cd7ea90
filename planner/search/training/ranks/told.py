"""What each kind of rank of a judged candidate takes, as a document has it."""

from dataclasses import replace

from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.plan.figures import AtPeak, RankFigures
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.unlike.kinds import kinds_of
from gpu_plan.planner.search.training.unlike.places import held_elements, runs
from gpu_plan.planner.strategy.base import RankPlan


def ranks_of(evaluator: Evaluator, judged: StepJudgement) -> tuple[RankFigures, ...]:
    """Every kind of rank, that of rank 0 first; one of them where all take the same.

    None for one device, for strategies that tell the worst rank alone, and of a job of several models, of which the
    step is only a part.
    """
    family = judged.family
    if evaluator.cluster.world_size == 1 or not family.strategy.traits.every_rank:
        return ()
    found: dict[tuple[object, ...], tuple[list[int], int, StepJudgement]] = {}
    replicas = 1
    for kind in kinds_of(evaluator, family, judged.batch):
        replicas, elements = kind.context.replicate, held_elements(kind.context)
        one = as_rank(evaluator, judged, family.strategy.rank(kind.context))
        found.setdefault((elements, *one.profile.at_peak.values()), ([], elements, one))[0].extend(kind.places)
    if all(one.profile.peak_allocated_bytes != judged.profile.peak_allocated_bytes for _, _, one in found.values()):
        return ()
    return tuple(
        RankFigures(
            ranks=runs(places),
            replicas=replicas,
            parameters=elements,
            peak_allocated_bytes=one.profile.peak_allocated_bytes,
            device_used_bytes=one.used_bytes,
            phase_of_peak=str(one.profile.phase_of_peak),
            at_peak=AtPeak(**{str(category): size for category, size in one.profile.at_peak.items()}),
        )
        for places, elements, one in found.values()
    )


def as_rank(evaluator: Evaluator, judged: StepJudgement, plan: RankPlan) -> StepJudgement:
    """The judged candidate as another rank goes through it, its allocator simulated where the candidate's was."""
    whole = evaluator.evaluating(judged.family, plan)
    profile = measure(whole.stream, judged.batch.micro_batch)
    one = replace(judged, planned=lambda: whole, profile=profile, simulated=None, shown=None, exact=None)
    return one if judged.simulated is None else evaluator.simulate(one)
