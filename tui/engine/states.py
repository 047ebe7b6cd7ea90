"""What model states alone say of a configuration, before anything is traced: of ranks that share a copy, at least."""

from dataclasses import replace

from gpu_plan.planner.memory.profile import MemoryProfile, PeakDetails
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.least import stages
from gpu_plan.planner.search.training.least.together import Bounds
from gpu_plan.planner.trace.events import Category


def judged_states(evaluator: Evaluator, family: Family, batch: Batch) -> StepJudgement | None:
    """A lower bound of what a rank holds; None of Megatron-core's layouts, which lay out states by themselves."""
    if family.layout is not None:
        return None
    if family.copy_ranks == 1:
        return evaluator.judge_states(family, batch)
    if family.pipeline is not None:
        alone, least = stages.states(evaluator, family, batch)
    else:
        bounds = Bounds(evaluator)
        alone, least = evaluator.judge_states(bounds.alone(family), batch), bounds.states(family, batch)
    allocated = least - sum(term.low for term in alone.terms)
    return replace(alone, family=family, profile=_scaled(alone.profile, allocated))


def _scaled(whole: MemoryProfile, allocated: int) -> MemoryProfile:
    """A rank's part of what a copy alone holds, every category alike."""
    total = max(1, whole.peak_allocated_bytes)

    def part(size: int) -> int:
        return size * allocated // total

    def details() -> PeakDetails:
        at_peak = {category: part(size) for category, size in whole.at_peak.items()}
        left = allocated - sum(at_peak.values())
        at_peak[Category.PARAMETERS] = at_peak.get(Category.PARAMETERS, 0) + left
        return PeakDetails(
            phase_of_peak=whole.phase_of_peak,
            at_peak=at_peak,
            at_rest_bytes=part(whole.at_rest_bytes),
            phase_peaks={phase: part(size) for phase, size in whole.phase_peaks.items()},
        )

    return MemoryProfile(peak_allocated_bytes=allocated, details=details)
