"""The front: plans that none beats in time, memory of the device and RAM of the node at once. Cost follows time.

A candidate is dropped unsimulated only where a plan that was simulated beats it whatever its allocator does: its time
is exact, the RAM of the node is, and its tensors are a lower bound of what the device holds.
"""

from collections.abc import Callable, Sequence
from typing import Any

from gpu_plan.planner.search.evaluator import J
from gpu_plan.planner.search.judgement import Judgement


def completed(exact: Sequence[J], bounded: Sequence[J], simulate: Callable[[J], J]) -> list[J]:
    """Those of `bounded` that fit and belong to the front beside `exact`, simulated; the fastest are tried first."""
    held: list[J] = [plan for plan in exact if plan.verdict == "fits"]
    added: list[J] = []
    for candidate in sorted(bounded, key=lambda one: (one.expected_seconds, one.identity)):
        if any(beats(plan, candidate) for plan in held):
            continue
        found = simulate(candidate)
        if found.verdict == "fits" and not any(beats(plan, found) for plan in held):
            held.append(found)
            added.append(found)
    return [plan for plan in added if not any(beats(other, plan) for other in held if other is not plan)]


def front(plans: Sequence[Judgement]) -> frozenset[int]:
    """Positions of the plans that fit and that no other which fits beats."""
    fitting = [(place, plan) for place, plan in enumerate(plans) if plan.verdict == "fits"]
    return frozenset(
        place for place, plan in fitting if not any(beats(other, plan) for _, other in fitting if other is not plan)
    )


def beats(one: Judgement, other: Judgement) -> bool:
    """Whether a plan is nowhere worse than another and somewhere better; of equal ones the first by name does."""
    mine, theirs = axes(one), axes(other)
    if mine == theirs:
        return bool(one.identity < other.identity)
    return all(a <= b for a, b in zip(mine, theirs, strict=True))


def axes(plan: Judgement) -> tuple[Any, ...]:
    """Seconds of a sample, bytes of the device and of the node; of one that was not simulated a lower bound."""
    return (plan.expected_seconds, plan.expected_bytes, plan.kept_host_bytes)
