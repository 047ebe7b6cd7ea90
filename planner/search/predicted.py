"""The predicted memory snapshot, and the timeline, of what a search chose."""

from typing import Any

from gpu_plan.planner.memory.allocator.replay import simulate
from gpu_plan.planner.memory.allocator.result import AllocatorResult
from gpu_plan.planner.memory.snapshot import Snapshot, snapshot
from gpu_plan.planner.memory.timeline import timeline
from gpu_plan.planner.plan.timeline import Timeline
from gpu_plan.planner.search.evaluator import J
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.search import Found


def predicted_snapshot(found: Found[J], pinned: bool) -> Snapshot | None:
    """Of the best plan, or of the pinned configuration even where it does not fit; None where nothing fits."""
    chosen = _chosen(found, pinned)
    return None if chosen is None else snapshot(chosen.stream, chosen.replayed, _run(chosen))


def predicted_timeline(found: Found[J], pinned: bool, model: str) -> Timeline | None:
    """The step, or the generation, of the same plan."""
    chosen = _chosen(found, pinned)
    if chosen is None:
        return None
    words = f"{model}: {chosen.title}"
    return timeline(chosen.stream, chosen.replayed, _run(chosen), title=words, capacity=chosen.capacity_bytes)


def predicted_schedule(found: Found[J], pinned: bool, model: str) -> dict[str, Any] | None:
    """The step of the same plan, stream by stream, for Chrome and Perfetto; None for a generation."""
    chosen = _chosen(found, pinned)
    made = None if chosen is None else chosen.schedule
    return None if made is None or chosen is None else made(f"{model}: {chosen.title}")


def _chosen(found: Found[J], pinned: bool) -> J | None:
    if found.plans:
        return found.plans[0]
    return found.rejected[0].judgement if pinned and found.rejected else None


def _run(judgement: Judgement) -> AllocatorResult:
    """The run that the plan's figures describe, without limit; where it would die on the device, the run that dies."""
    stream, replayed = judgement.stream, judgement.replayed
    free = simulate(stream, replayed, settings=judgement.allocator)
    room = judgement.capacity_bytes - sum(term.low for term in judgement.terms)
    if free.peak_reserved_bytes <= room:
        return free
    limited = simulate(stream, replayed, capacity=room, settings=judgement.allocator)
    # Where not even the first tensor has room there is no run to draw.
    return limited if limited.oom_at is not None and len(limited.charged) else free
