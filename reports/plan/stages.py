"""A pipeline's ranks in words: what each holds and takes, and how long they wait for one another."""

from gpu_plan.planner.plan.document import Candidate, StageFigures
from gpu_plan.planner.units import GIB, format_count, format_gib

STAGE_HEADS = ("stage", "layers", "parameters", "in flight", "activations", "peak GiB", "busy")
"""Headings of `stage_rows`; the last four are numbers."""

_WORTH_SAYING = 0.01
"""Share of a step from which on transfers are named."""


def schedule_words(candidate: Candidate) -> list[str]:
    """How micro batches go through, and what shares of the step are spent waiting; none where there is one stage."""
    choice, speed = candidate.strategy, candidate.speed
    stages = choice.pipeline_parallel * choice.virtual_stages
    if not candidate.stages or stages == 1:
        return []
    each = f", {choice.virtual_stages} on each rank" if choice.virtual_stages > 1 else ""
    pieces = [
        f"schedule {choice.schedule}",
        f"{choice.gradient_accumulation_steps} micro batches through {stages} stages{each}",
    ]
    if speed is not None and "bubble" in speed.parts:
        pieces.append(f"ranks wait {speed.parts['bubble'] / speed.step_seconds:.0%} of the step for one another")
        sent = speed.parts.get("exposed_communication", 0.0) / speed.step_seconds
        if sent >= _WORTH_SAYING:
            pieces.append(f"{sent:.0%} of it for what they send within a stage, and between pipelines")
    return pieces


def stage_rows(candidate: Candidate) -> list[tuple[str, ...]]:
    """One row a rank of the pipeline, first to last."""
    seconds = candidate.speed.step_seconds if candidate.speed is not None else 0.0
    return [
        (
            str(one.rank),
            layer_words(one),
            format_count(one.parameters),
            str(one.in_flight),
            _gib(one.at_peak.activations),
            _gib(one.peak_allocated_bytes),
            f"{one.busy_seconds / seconds:.0%}" if seconds else "",
        )
        for one in candidate.stages
    ]


def layer_words(stage: StageFigures) -> str:
    """`embedding, 0-3`, `28-31, head`, `4-7 and 20-23`."""
    runs = [f"{first}-{end - 1}" if end - first > 1 else f"{first}" for first, end in stage.layers]
    pieces = ["embedding"] * stage.embedding + [" and ".join(runs)] + ["head"] * stage.head
    return ", ".join(pieces)


def _gib(size: int) -> str:
    return format_gib(size, 1 if size >= GIB // 10 or size == 0 else 4)
