"""Degrees that span nodes, with what a step waits for them."""

from collections.abc import Iterable, Iterator

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.search.training.evaluate import StepJudgement


def spanning_warnings(plans: Iterable[StepJudgement], cluster: Cluster) -> tuple[str, ...]:
    """A line for each degree of tensor or expert parallel that is larger than a node, of the first plan that has it."""
    found: dict[tuple[str, int], str] = {}
    for plan in plans:
        if cluster.nodes > 1 and plan.family.layout is None and plan.family.pipeline is None:
            for option, degree, words in _spanning(plan, cluster):
                found.setdefault((option, degree), words)
    return tuple(found.values())


def _spanning(plan: StepJudgement, cluster: Cluster) -> Iterator[tuple[str, int, str]]:
    node = cluster.gpus_per_node
    for option, axis, degree in (
        ("--tp", "tensor", plan.family.tensor_parallel),
        ("--ep", "expert", plan.family.expert_parallel),
    ):
        if degree <= node or plan.time.degrees is None:
            continue
        waited = sum(one.exposed_seconds for one in plan.time.degrees() if one.axis == axis)
        share = waited / plan.time.step_seconds
        words = (
            f"{option} {degree} spans {-(-degree // node)} nodes of {node} GPUs: {_seconds(waited)} of the"
            f" {_seconds(plan.time.step_seconds)} of a step ({share:.0%}) are waited for it;"
            f" a degree of at most {node} stays within a node"
        )
        yield option, degree, words


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
