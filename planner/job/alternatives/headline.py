"""The first line of a report whose first plan keeps something in the node's RAM: what does without."""

from collections.abc import Sequence
from typing import Any

from gpu_plan.planner.job.alternatives.found import Beside
from gpu_plan.planner.search.ranking.ratio import ratio
from gpu_plan.planner.search.ranking.words import lacks, unsure
from gpu_plan.planner.search.task import AnyTask


def first_line(other: Beside, plans: Sequence[Any], task: AnyTask) -> str | None:
    """What surely does without, and trains the same or answers the same prompts; else what may fit and is much faster.
    None where there is neither. `plans`: those that were found, the first of which fits."""
    return _without_host(other, plans[0], task) or _worth_a_try(other, plans)


def _without_host(other: Beside, best: Any, task: AnyTask) -> str | None:
    one, what = other.same_without_host, "trains the same without the node's RAM"
    if one is None:
        one, what = other.without_host, "keeps nothing in the node's RAM"
    if one is None:
        return None
    mine, theirs = one.samples_per_second, best.samples_per_second
    each = task.speed(best).tokens_per_second_per_gpu
    if one.tokens_per_second is not None and each:
        mine, theirs = one.tokens_per_second, each * task.evaluator.cluster.world_size
    most = "at most " if one.at_most else ""
    return f"{one.change} {what}: {one.plan}, {most}{mine / theirs:,.2f} times the speed"


def _worth_a_try(other: Beside, plans: Sequence[Any]) -> str | None:
    """As the job is, or with what trains the same."""
    faster, before = unsure(plans), ""
    if faster is None and other.may_do_without is not None:
        change, plan = other.may_do_without
        faster, before = (plan, ratio(plan.seconds, plans[0].seconds)), f"{change}: "
    if faster is None:
        return None
    plan, times = faster
    return (
        f"{before}{plan.full_title} does without the node's RAM at {1 / times.expected:.2f} times the speed, but"
        f" {lacks(plan)}: worth a try before the plan below"
    )
