"""The predicted memory snapshot, and the timeline of a step, of what a search chose."""

from gpu_plan.planner.memory.allocator.replay import simulate
from gpu_plan.planner.memory.allocator.result import AllocatorResult
from gpu_plan.planner.memory.snapshot import Snapshot, snapshot
from gpu_plan.planner.memory.timeline import timeline
from gpu_plan.planner.plan.timeline import Timeline
from gpu_plan.planner.search.evaluate import Judgement
from gpu_plan.planner.search.reasons import title
from gpu_plan.planner.search.search import Found


def predicted_snapshot(found: Found, pinned: bool) -> Snapshot | None:
    """Of the best plan, or of the pinned configuration even where it does not fit; None where nothing fits."""
    chosen = _chosen(found, pinned)
    if chosen is None:
        return None
    return snapshot(chosen.plan.stream, chosen.batch.micro_batch, _run(chosen))


def predicted_timeline(found: Found, pinned: bool, model: str) -> Timeline | None:
    """The step of the same plan."""
    chosen = _chosen(found, pinned)
    if chosen is None:
        return None
    stream, micro_batch = chosen.plan.stream, chosen.batch.micro_batch
    words = f"{model}: {title(chosen)}"
    return timeline(stream, micro_batch, _run(chosen), title=words, capacity=chosen.capacity_bytes)


def _chosen(found: Found, pinned: bool) -> Judgement | None:
    if found.plans:
        return found.plans[0]
    return found.rejected[0].judgement if pinned and found.rejected else None


def _run(judgement: Judgement) -> AllocatorResult:
    """The run that the plan's figures describe, without limit; where it would die on the device, the run that dies."""
    stream, micro_batch = judgement.plan.stream, judgement.batch.micro_batch
    free = simulate(stream, micro_batch, settings=judgement.allocator)
    room = judgement.capacity_bytes - sum(term.low for term in judgement.terms)
    if free.peak_reserved_bytes <= room:
        return free
    limited = simulate(stream, micro_batch, capacity=room, settings=judgement.allocator)
    return free if limited.oom_at is None else limited
