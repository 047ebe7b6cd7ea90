"""A job of several models in words, the same in every report. Nothing here knows a format."""

from gpu_plan.planner.plan.document import Candidate
from gpu_plan.planner.plan.recipe import JobModel, RecipeFigures
from gpu_plan.planner.units import GIB, format_count, format_gib

_REFERENCES = {
    "kept": "reference kept beside it",
    "adapters": "reference is the policy without its adapters",
    "precomputed": "reference asked before the first step",
}


def lines(candidate: Candidate) -> list[list[str]]:
    """What a job of several models adds to a candidate: who runs it, its phases, its models."""
    figures = candidate.recipe
    if figures is None:
        return []
    return [about(figures), phase_words(figures), *([model_words(one)] for one in figures.models)]


def about(figures: RecipeFigures) -> list[str]:
    """`dpo by TRL's DPOTrainer`, lengths, the reference."""
    pieces = [
        f"{figures.recipe} by TRL's {figures.trainer}",
        f"prompts of {figures.prompt_len:,} and completions of {figures.completion_len:,} tokens",
    ]
    return pieces if figures.reference is None else [*pieces, _REFERENCES[figures.reference]]


def phase_words(figures: RecipeFigures) -> list[str]:
    """Most allocated in each phase; the worst decides."""
    peaks = ", ".join(f"{phase.name} {_gib(phase.peak_bytes)}" for phase in figures.phases)
    return [f"peak GiB: {peaks}", f"{figures.worst_phase} decides"]


def model_words(one: JobModel) -> str:
    """`reference: 8.03B frozen, float32: 29.9 GiB at the peak, 61.2 at most while it runs`."""
    trained = "trained" if one.trained == one.parameters else "frozen" if not one.trained else "partly trained"
    running = f", {_gib(one.running_peak_bytes)} at most while it runs" if one.running_peak_bytes else ""
    return (
        f"{one.role}: {format_count(one.parameters)} {trained}, {one.dtype}:"
        f" {_gib(one.at_peak_bytes)} GiB at the peak{running}"
    )


def _gib(num_bytes: int) -> str:
    return format_gib(num_bytes, 1 if num_bytes == 0 or num_bytes >= GIB // 10 else 4)
