"""Tries every family with growing micro batches, and keeps what fits and why the rest does not."""

from dataclasses import dataclass, field

from planner.search.candidates import Batch, Family, batches, families
from planner.search.evaluate import Evaluator, Judgement
from planner.search.reasons import too_large, too_much_host
from planner.workload import Workload


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
    evaluated: int = 0


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
    found.plans.sort(key=_rank)
    found.rejected.sort(key=lambda loser: loser.judgement.low_bytes)
    found.evaluated = evaluator.evaluated
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
    best: Judgement | None = None
    failed: Loser | None = None
    tried = _ascending(evaluator.workload, cuts)
    for batch in tried:
        judgement = evaluator.judge(family, batch)
        reason = _failure(evaluator, judgement)
        if reason is not None:
            failed = Loser(judgement=judgement, reason=reason)
            break
        if best is None or _rank(judgement) < _rank(best):
            best = judgement
    if (best is None or best.verdict != "fits") and tried[0] is not cuts[0]:
        smallest = evaluator.judge(family, cuts[0])
        reason = _failure(evaluator, smallest)
        if reason is not None:
            failed = Loser(judgement=smallest, reason=reason)
        elif best is None or _rank(smallest) < _rank(best):
            best = smallest
    if failed is not None:
        found.rejected.append(failed)
    if best is not None:
        found.plans.append(best)


def _ascending(workload: Workload, cuts: list[Batch]) -> list[Batch]:
    """A single sample is only worth tracing when two do not fit: it is never faster."""
    if len(cuts) > 1 and cuts[0].micro_batch == 1 and cuts[1].micro_batch == 2 and workload.global_batch is None:
        return cuts[1:]
    return cuts


def _failure(evaluator: Evaluator, judgement: Judgement) -> str | None:
    if judgement.verdict == "no":
        return too_large(judgement)
    needed = judgement.host_bytes * evaluator.cluster.gpus_per_node
    if evaluator.host_limit is not None and needed > evaluator.host_limit:
        return too_much_host(judgement, needed, evaluator.host_limit)
    return None
