"""A family's candidates: growing micro batches, bounded by their tensors, then simulated."""

from dataclasses import replace

from gpu_plan.planner.search.ranking.rules import LONGER
from gpu_plan.planner.search.reasons import failure, fragmented, too_large
from gpu_plan.planner.search.task import Explored, Rejected
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.workload.training import Workload

_MATTERS = 10
"""Of the device: plans are compared by tenths of it."""


def explored(
    evaluator: Evaluator, family: Family, cuts: list[Batch], *, exhaustive: bool, only_fits: bool = False
) -> Explored[StepJudgement]:
    """The best micro batch of a family, the others that leave room, and the smallest one that fails; with `only_fits`
    the best where it fits, and of the rest whatever was found on the way.

    What a rank of several holds of one copy, only its trace tells: its states alone rule nothing out.
    """
    states = None if family.copy_ranks > 1 or family.layout is not None else evaluator.judge_states(family, cuts[0])
    if states is not None and states.verdict == "no" and not exhaustive:
        return Explored(rejected=Rejected(judgement=states, reason=too_large(states)))
    tried = _ascending(evaluator.workload, cuts)
    possible, failed = _bounded(evaluator, family, tried)
    if possible and failed is not None and tried is not cuts:
        possible += _between(evaluator, family, possible, failed.judgement)
    best, failed_exactly = _exact(evaluator, possible, only_fits=only_fits)
    if tried is not cuts:
        best = _better(_closer(evaluator, family, possible, best), best)
    if tried[0] is not cuts[0] and _alone_matters(best, possible, states):
        smaller, failed_smaller = _bounded(evaluator, family, cuts[:1])
        if best is None or best.device_verdict != "fits":
            smallest, failed_smallest_exactly = _exact(evaluator, smaller, only_fits=only_fits)
            failed = failed_smaller or failed_smallest_exactly or failed
            best = _better(smallest, best)
        possible += smaller
    others = () if best is None else tuple(one for one in possible if one.batch != best.batch)
    rejected = failed_exactly if failed_exactly is not None and (failed is None or best is None) else failed
    return Explored(best=best, rejected=rejected, others=others)


def _alone_matters(best: StepJudgement | None, possible: list[StepJudgement], states: StepJudgement | None) -> bool:
    """Whether a single sample is worth a trace of its own: it is never faster than two, but may fit where they do not,
    or free a tenth of the device; what stands without any step is the least that it can come to."""
    if best is None or best.device_verdict != "fits":
        return True
    if states is None:
        return False
    freed = possible[0].expected_bytes - states.expected_bytes
    return freed * _MATTERS >= possible[0].capacity_bytes


def _better(one: StepJudgement | None, other: StepJudgement | None) -> StepJudgement | None:
    """The one that fits, then the faster; the first of two that are alike."""
    known = [judgement for judgement in (other, one) if judgement is not None]
    return min(known, key=lambda found: (found.device_verdict != "fits", -found.samples_per_second), default=None)


def _between(
    evaluator: Evaluator, family: Family, possible: list[StepJudgement], fails: StepJudgement
) -> list[StepJudgement]:
    """Micro batches between the last power of two that leaves room and the next, where they do too: the one halfway,
    and the one halfway to what fails as long as that would gain more than what counts as a tie."""
    found: list[StepJudgement] = []
    fits, above, top, looked = possible[-1], fails, fails.batch.micro_batch, False
    while (size := (fits.batch.micro_batch + top) // 2) != fits.batch.micro_batch:
        if looked and not _gains(above, fits):
            break
        looked = True
        if _exceeds([*possible, *found], size):
            top = size
            continue
        judgement = _at_hand(evaluator, family, fits, size)
        if judgement is None:
            break
        if failure(evaluator, judgement) is None:
            fits = judgement
            found.append(judgement)
        else:
            above, top = judgement, size
    return found


def _gains(larger: StepJudgement, smaller: StepJudgement) -> bool:
    """Whether a sample takes so much less time in the larger batch that it is no tie."""
    return larger.samples_per_second > LONGER * smaller.samples_per_second


def _exceeds(possible: list[StepJudgement], size: int) -> bool:
    """Whether a micro batch certainly leaves no room.

    A peak is the highest of sums that are each in proportion to the batch: it never grows by less than it did before,
    so that what the last two sizes lead to is a lower bound, and often enough to leave it.
    """
    fits = possible[-1]
    if len(possible) == 1:
        return False
    before = possible[-2]
    grown = (fits.least_bytes - before.least_bytes) / (fits.batch.micro_batch - before.batch.micro_batch)
    return fits.least_bytes + grown * (size - fits.batch.micro_batch) > fits.capacity_bytes


def _at_hand(evaluator: Evaluator, family: Family, beside: StepJudgement, size: int) -> StepJudgement | None:
    """One more candidate between others; None where its step would have to be traced and cannot be."""
    try:
        return evaluator.judge(family, replace(beside.batch, micro_batch=size))
    except NotTraceableError:
        return None


def _closer(
    evaluator: Evaluator, family: Family, possible: list[StepJudgement], best: StepJudgement | None
) -> StepJudgement | None:
    """Micro batches between the best that fits and the next, whose tensors left room and whose allocator did not: one
    may be faster and fit. Each is halfway, and simulated only where the next gains more than what counts as a tie."""
    if best is None or best.device_verdict != "fits":
        return None
    larger = [one for one in possible if one.batch.micro_batch > best.batch.micro_batch and _gains(one, best)]
    if not larger:
        return None
    found, fits = None, best
    above = min(larger, key=lambda one: one.batch.micro_batch)
    while (size := (fits.batch.micro_batch + above.batch.micro_batch) // 2) != fits.batch.micro_batch:
        judgement = _at_hand(evaluator, family, fits, size)
        if judgement is None or not _gains(above, fits):
            break
        lost = failure(evaluator, judgement) is not None or not evaluator.may_fit(judgement)
        exact = None if lost else evaluator.simulate(judgement, pressed=False)
        if exact is not None and exact.device_verdict == "fits":
            found = fits = exact
        else:
            above = judgement
    return found


def _bounded(
    evaluator: Evaluator, family: Family, cuts: list[Batch]
) -> tuple[list[StepJudgement], Rejected[StepJudgement] | None]:
    """Candidates whose tensors alone leave room, up to the first that does not: more samples never take less."""
    possible: list[StepJudgement] = []
    for batch in cuts:
        try:
            judgement = evaluator.judge(family, batch)
        except NotTraceableError:
            if not possible:
                raise
            return possible, None  # larger than any shipped trace
        reason = failure(evaluator, judgement)
        if reason is not None:
            return possible, Rejected(judgement=judgement, reason=reason)
        possible.append(judgement)
    return possible, None


def _exact(
    evaluator: Evaluator, possible: list[StepJudgement], *, only_fits: bool
) -> tuple[StepJudgement | None, Rejected[StepJudgement] | None]:
    """The fastest that fits when the allocator is simulated, or the fastest tight one; and one that does not. With
    `only_fits` nothing is simulated whose tensors leave no room at the high end, or under the real capacity."""
    tight: StepJudgement | None = None
    failed_exactly: Rejected[StepJudgement] | None = None
    for judgement in sorted(possible, key=lambda candidate: -candidate.samples_per_second):
        if only_fits and not evaluator.may_fit(judgement):
            continue
        exact = evaluator.simulate(judgement, pressed=not only_fits)
        if exact.device_verdict == "fits":
            return exact, failed_exactly
        if exact.device_verdict == "no":
            failed_exactly = Rejected(judgement=exact, reason=fragmented(exact))
        elif tight is None:
            tight = exact
    return tight, failed_exactly


def _ascending(workload: Workload, cuts: list[Batch]) -> list[Batch]:
    """A single sample is only worth tracing when two do not fit: it is never faster."""
    if len(cuts) > 1 and cuts[0].micro_batch == 1 and cuts[1].micro_batch == 2 and workload.global_batch is None:
        return cuts[1:]
    return cuts
