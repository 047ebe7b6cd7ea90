"""Which plans no other beats both in memory and in speed."""

from collections.abc import Iterable

from gpu_plan.planner.plan.document import Candidate


def pareto_front(plans: Iterable[Candidate]) -> list[Candidate]:
    """Of plans with figures, those for which no other takes as little memory and is as fast, and better in one.

    In order of memory; of equals the first given.
    """
    figured = [plan for plan in plans if plan.memory is not None and plan.speed is not None]
    ordered = sorted(figured, key=lambda plan: (_used(plan), -_rate(plan)))
    front: list[Candidate] = []
    for plan in ordered:
        if not front or _rate(plan) > _rate(front[-1]):
            front.append(plan)
    return front


def _used(plan: Candidate) -> int:
    return plan.memory.device_used_bytes if plan.memory else 0


def _rate(plan: Candidate) -> float:
    return plan.speed.samples_per_second if plan.speed else 0.0
