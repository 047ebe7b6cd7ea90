"""What a rank takes whose experts are chosen as often as the code allows, where a plan counts with even choices.

transformers 5.23 distributed/expert_parallel.py: AllToAllEP._dispatch_tokens sends every token to the ranks that hold
the experts it has chosen, all of them: there is no capacity beyond which one is dropped. A router chooses an expert
once a token, so that a rank with n experts gets min(n, experts per token) of each token's, of every rank of its group.
"""

from dataclasses import replace

from gpu_plan.planner.plan.figures import CrowdedFigures
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.ranks.told import as_rank
from gpu_plan.planner.speed.in_step import collectives_of
from gpu_plan.planner.trace.events import StepTrace


def crowded_figures(evaluator: Evaluator, judged: StepJudgement) -> CrowdedFigures | None:
    """None where no rank holds experts of its own. Traces the step anew."""
    family, batch = judged.family, judged.batch
    if family.expert_parallel == 1 or family.layout is not None or family.pipeline is not None:
        return None
    variant = evaluator.variant(family)
    even = evaluator.provider.trace(variant, batch.micro_batch)
    crowd = replace(variant, crowded=True)
    trace = evaluator.provider.trace(crowd, batch.micro_batch)
    steps = min(batch.accumulation_steps, 2)
    plan = family.strategy.rank(evaluator.context(family, steps, trace))
    worst = as_rank(evaluator, judged, plan)
    time = evaluator.speed.step_time(evaluator.work_of(crowd, family, batch, trace, plan), evaluator.cluster)
    most = _received(trace, family.expert_parallel, batch.micro_batch) / _received(
        even, family.expert_parallel, batch.micro_batch
    )
    return CrowdedFigures(
        most_times=most,
        peak_allocated_bytes=max(worst.profile.peak_allocated_bytes, judged.profile.peak_allocated_bytes),
        device_used_bytes=max(worst.used_bytes, judged.used_bytes),
        borne_times=_borne(
            most, worst.used_high_bytes - judged.used_high_bytes, judged.capacity_bytes - judged.used_high_bytes
        ),
        step_seconds=max(time.step_seconds, judged.time.step_seconds),
    )


def _received(trace: StepTrace, experts: int, micro_batch: int) -> int:
    """Bytes of the largest exchange that a rank gets."""
    calls = collectives_of(trace, 1, experts, micro_batch)
    return max(call.bytes for call in calls if call.kind == "all_to_all")


def _borne(most: float, more: int, room: int) -> float:
    """Times its even share that a rank has room for. What stands is a maximum of sums that grow with the share, so that
    between even and most it lies on or below the straight line that this follows."""
    if more <= max(0, room):
        return most
    return 1.0 + (most - 1.0) * max(0, room) / more
