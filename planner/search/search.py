"""Tries every family with growing micro batches, and keeps what fits and why the rest does not."""

from dataclasses import dataclass, field

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.search.candidates import Batch, Family, batches, families
from gpu_plan.planner.search.evaluate import Evaluator, Judgement
from gpu_plan.planner.search.reasons import fragmented, title, too_large, too_much_host
from gpu_plan.planner.workload.training import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """A candidate that cannot run, and why."""

    judgement: Judgement
    reason: str


@dataclass(slots=True, kw_only=True)
class Found:
    """What a search found: plans best first, those that fit before the tight ones."""

    plans: list[Judgement] = field(default_factory=list)
    rejected: list[Loser] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    """Families that make no sense here, with the reason."""


def search(evaluator: Evaluator, *, exhaustive: bool = False) -> Found:
    """The best micro batch of every family, and the smallest one that fails.

    `exhaustive` evaluates in full even what its model states alone rule out (a pinned configuration).
    """
    workload, cluster = evaluator.workload, evaluator.cluster
    found = Found()
    cuts = batches(workload, cluster.world_size)
    for family in families(workload, cluster, evaluator.provider.spec().can_checkpoint):
        refusal = _refusal(evaluator, family, cuts[0])
        if refusal is not None:
            found.passed_over.append(f"{family.strategy.title}: {refusal}")
            continue
        _search_family(evaluator, family, cuts, found, exhaustive)
    if found.passed_over and not found.plans and not found.rejected:
        raise UsageError(f"{'; '.join(dict.fromkeys(found.passed_over))}: change that option or leave it out")
    found.plans.sort(key=_rank)
    found.rejected.sort(key=lambda loser: loser.judgement.low_bytes)
    return found


def _refusal(evaluator: Evaluator, family: Family, batch: Batch) -> str | None:
    trace = evaluator.provider.stepless(evaluator.variant(family).regime)
    return family.strategy.refuses(evaluator.context(family, batch.accumulation_steps, trace))


def _rank(judgement: Judgement) -> tuple[bool, float, int]:
    return (judgement.verdict != "fits", -judgement.samples_per_second, judgement.expected_bytes)


def _search_family(evaluator: Evaluator, family: Family, cuts: list[Batch], found: Found, exhaustive: bool) -> None:
    states = evaluator.judge_states(family, cuts[0])
    if states.verdict == "no" and not exhaustive:
        found.rejected.append(Loser(judgement=states, reason=too_large(states)))
        return
    tried = _ascending(evaluator.workload, cuts)
    possible, failed = _bounded(evaluator, family, tried)
    best, died = _exact(evaluator, possible)
    if (best is None or best.verdict != "fits") and tried[0] is not cuts[0]:
        smaller, failed_smaller = _bounded(evaluator, family, cuts[:1])
        smallest, died_smallest = _exact(evaluator, smaller)
        failed = failed_smaller or died_smallest or failed
        if smallest is not None and (best is None or _rank(smallest) < _rank(best)):
            best = smallest
    loser = died if died is not None and (failed is None or best is None) else failed
    if loser is not None:
        found.rejected.append(loser)
    if best is not None:
        found.plans.append(best)


def _bounded(evaluator: Evaluator, family: Family, cuts: list[Batch]) -> tuple[list[Judgement], Loser | None]:
    """Candidates whose tensors alone leave room, up to the first that does not: more samples never take less."""
    possible: list[Judgement] = []
    for batch in cuts:
        judgement = evaluator.judge(family, batch)
        reason = failure(evaluator, judgement)
        if reason is not None:
            return possible, Loser(judgement=judgement, reason=reason)
        possible.append(judgement)
    return possible, None


def _exact(evaluator: Evaluator, possible: list[Judgement]) -> tuple[Judgement | None, Loser | None]:
    """The fastest candidate that fits when the allocator is simulated, or the fastest tight one; and one that died."""
    tight: Judgement | None = None
    died: Loser | None = None
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


def failure(evaluator: Evaluator, judgement: Judgement) -> str | None:
    """Why a candidate cannot run, as far as its tensors and the node's RAM tell; None where they leave room."""
    if judgement.plan.dies:
        return f"{title(judgement)}: {judgement.plan.dies}"
    if judgement.verdict == "no":
        return too_large(judgement)
    short = evaluator.host_shortage(judgement)
    if short is not None and evaluator.host_limit is not None:
        return too_much_host(judgement, short, evaluator.host_limit)
    return None
