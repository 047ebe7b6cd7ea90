"""Tries every way to spread a generation, and keeps what fits and why the rest does not."""

from dataclasses import dataclass, field

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.infer.evaluate import GenerationEvaluator, InferJudgement
from gpu_plan.planner.infer.layout import layouts
from gpu_plan.planner.trace.events import CATEGORIES
from gpu_plan.planner.trace.generation.errors import CannotSplitError
from gpu_plan.planner.units import format_gib

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """A candidate that cannot run, and why."""

    judgement: InferJudgement
    reason: str


@dataclass(slots=True, kw_only=True)
class Found:
    """What a search found: plans best first, those that fit before the tight ones."""

    plans: list[InferJudgement] = field(default_factory=list)
    rejected: list[Loser] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    """Ways that make no sense here, with the reason."""


def search(evaluator: GenerationEvaluator) -> Found:
    """Every way that the options leave, judged. UsageError where they leave none."""
    found = Found()
    wanted = layouts(evaluator.workload, evaluator.cluster)
    if not wanted:
        raise UsageError(_none_left(evaluator))
    for layout in wanted:
        refusal = evaluator.refuses(layout)
        if refusal is not None:
            found.passed_over.append(f"{layout.title}: {refusal}")
            continue
        try:
            judgement = evaluator.judge(layout)
        except CannotSplitError as problem:
            found.passed_over.append(f"{layout.title}: {problem}")
            continue
        if judgement.verdict == "no" or judgement.shortage:
            found.rejected.append(Loser(judgement=judgement, reason=judgement.shortage or too_large(judgement)))
        else:
            found.plans.append(judgement)
    if found.passed_over and not found.plans and not found.rejected:
        raise UsageError(f"{'; '.join(found.passed_over)}: change that option or leave it out")
    found.plans.sort(key=rank)
    found.rejected.sort(key=lambda loser: loser.judgement.low_bytes)
    return found


def _none_left(evaluator: GenerationEvaluator) -> str:
    """Why a strategy cannot be on these devices, and what to give instead."""
    strategy, count = evaluator.workload.strategy, evaluator.cluster.world_size
    if strategy == "replicas":
        return "--strategy replicas needs more than one GPU: use single, or more in --gpus"
    if strategy in ("tp", "pp") and count > 1:
        return f"--strategy {strategy} needs a degree: add --{strategy}, such as --{strategy} 2, which divides {count}"
    return f"--strategy {strategy} needs more than one GPU: use single, or more in --gpus"


def rank(judgement: InferJudgement) -> tuple[bool, float, int]:
    """Best first: it fits, then generated samples per second, then memory."""
    return (judgement.verdict != "fits", judgement.seconds_per_sample / judgement.samples, judgement.expected_bytes)


def too_large(judgement: InferJudgement) -> str:
    """`tensor parallel 4 needs 97.3 GiB of 79.1 in prefill: parameters 65.2, KV cache 31.0, ...`."""
    parts = sorted(judgement.profile.at_peak.items(), key=lambda item: -item[1])[:_SHOWN]
    shares = ", ".join(f"{_word(category)} {format_gib(size)}" for category, size in parts if size)
    needed, capacity = format_gib(judgement.low_bytes), format_gib(judgement.capacity_bytes)
    phase = judgement.profile.phase_of_peak
    if judgement.low_bytes <= judgement.capacity_bytes:
        return f"{judgement.layout.title} dies of fragmentation in {capacity} GiB, in {phase}: {shares}"
    return f"{judgement.layout.title} needs {needed} GiB of {capacity} in {phase}: {shares}"


def _word(category: str) -> str:
    assert category in CATEGORIES
    return "KV cache" if category == "kv_cache" else str(category).replace("_", " ")
