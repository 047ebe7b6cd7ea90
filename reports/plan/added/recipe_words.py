"""A job of several models in words, the same in every report. Nothing here knows a format."""

from gpu_plan.planner.plan.document import Candidate
from gpu_plan.planner.plan.recipe import EngineFigures, JobModel, RecipeFigures
from gpu_plan.planner.units import GIB, format_count, format_gib

_REFERENCES = {
    "none": "no reference",
    "kept": "reference kept beside it",
    "adapters": "reference is the policy without its adapters",
    "precomputed": "reference asked before the first step",
}


def lines(candidate: Candidate) -> list[list[str]]:
    """What a job of several models adds to a candidate: who runs it, its phases, its models."""
    figures = candidate.recipe
    if figures is None:
        return []
    engine = [] if figures.engine is None else [engine_words(figures.engine)]
    return [about(figures), phase_words(figures), *([model_words(one)] for one in figures.models), *engine]


def about(figures: RecipeFigures) -> list[str]:
    """`dpo by TRL's DPOTrainer`, lengths, the reference."""
    pieces = [
        f"{figures.recipe} by TRL's {figures.trainer}",
        f"prompts of {figures.prompt_len:,} and completions of {figures.completion_len:,} tokens",
    ]
    if figures.generations > 1:
        pieces.append(f"{figures.generations} completions a prompt")
    return pieces if figures.reference is None else [*pieces, _REFERENCES[figures.reference]]


def phase_words(figures: RecipeFigures) -> list[str]:
    """Most allocated in each phase; the worst decides."""
    peaks = ", ".join(f"{phase.name} {_gib(phase.peak_bytes)}" for phase in figures.phases)
    return [f"peak GiB: {peaks}", f"{figures.worst_phase} decides"]


def engine_words(engine: EngineFigures) -> list[str]:
    """Where vLLM lies, its share, what it holds of it, and what it keeps while the update runs."""
    ranks = f", tensor parallel {engine.tensor_parallel}" if engine.tensor_parallel > 1 else ""
    place = "on the GPUs that train" if engine.mode == "colocate" else f"on {engine.gpus} GPUs of its own"
    asleep = ", asleep meanwhile" if engine.sleeps else ""
    kept = [f"{_gib(engine.update_bytes)} GiB of a GPU during the update{asleep}"] if engine.mode == "colocate" else []
    return [
        f"{engine.title} {engine.version} {place}{ranks}: {engine.share:g} of each, {_gib(engine.requested_bytes)} GiB",
        f"weights {_gib(engine.weight_bytes)}, cache {_gib(engine.cache_bytes)} GiB in {engine.blocks:,} blocks",
        f"{engine.concurrency:.1f} requests at once",
        *kept,
        f"a step's completions take {engine.rollout_seconds:.1f} s at least",
    ]


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
