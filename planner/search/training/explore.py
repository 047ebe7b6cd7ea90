"""A family's candidates: growing micro batches, bounded by their tensors, then simulated."""

from gpu_plan.planner.search.judgement import rank
from gpu_plan.planner.search.reasons import failure, fragmented, too_large
from gpu_plan.planner.search.task import Explored, Loser
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.workload.training import Workload


def explored(evaluator: Evaluator, family: Family, cuts: list[Batch], *, exhaustive: bool) -> Explored[StepJudgement]:
    """The best micro batch of a family, and the smallest one that fails.

    What a rank of several holds of one copy, only its trace tells: its states alone rule nothing out.
    """
    states = None if family.tensor_parallel > 1 else evaluator.judge_states(family, cuts[0])
    if states is not None and states.verdict == "no" and not exhaustive:
        return Explored(loser=Loser(judgement=states, reason=too_large(states)))
    tried = _ascending(evaluator.workload, cuts)
    possible, failed = _bounded(evaluator, family, tried)
    best, died = _exact(evaluator, possible)
    if (best is None or best.verdict != "fits") and tried[0] is not cuts[0]:
        smaller, failed_smaller = _bounded(evaluator, family, cuts[:1])
        smallest, died_smallest = _exact(evaluator, smaller)
        failed = failed_smaller or died_smallest or failed
        if smallest is not None and (best is None or rank(smallest) < rank(best)):
            best = smallest
    return Explored(best=best, loser=died if died is not None and (failed is None or best is None) else failed)


def _bounded(
    evaluator: Evaluator, family: Family, cuts: list[Batch]
) -> tuple[list[StepJudgement], Loser[StepJudgement] | None]:
    """Candidates whose tensors alone leave room, up to the first that does not: more samples never take less."""
    possible: list[StepJudgement] = []
    for batch in cuts:
        judgement = evaluator.judge(family, batch)
        reason = failure(evaluator, judgement)
        if reason is not None:
            return possible, Loser(judgement=judgement, reason=reason)
        possible.append(judgement)
    return possible, None


def _exact(
    evaluator: Evaluator, possible: list[StepJudgement]
) -> tuple[StepJudgement | None, Loser[StepJudgement] | None]:
    """The fastest candidate that fits when the allocator is simulated, or the fastest tight one; and one that died."""
    tight: StepJudgement | None = None
    died: Loser[StepJudgement] | None = None
    for judgement in sorted(possible, key=lambda candidate: -candidate.samples_per_second):
        exact = evaluator.simulate(judgement)
        if exact.verdict == "fits":
            return exact, died
        if exact.verdict == "no":
            died = Loser(judgement=exact, reason=fragmented(exact))
        elif tight is None:
            tight = exact
    return tight, died


def _ascending(workload: Workload, cuts: list[Batch]) -> list[Batch]:
    """A single sample is only worth tracing when two do not fit: it is never faster."""
    if len(cuts) > 1 and cuts[0].micro_batch == 1 and cuts[1].micro_batch == 2 and workload.global_batch is None:
        return cuts[1:]
    return cuts
