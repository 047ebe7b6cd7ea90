"""Which layouts are not traced: those whose states alone do not fit, and those that share out more than is needed."""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.search.ranking.rules import standing
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.units import format_gib

_HELD, _SHARED = 6, 12
"""Bytes of a parameter in the buffers of a rank, and in the states that data parallel ranks share out."""
_LEAST_HELD, _LEAST_SHARED = 4, 4
"""The same with everything in its smallest type."""


def hopeless(evaluator: Evaluator, layout: Layout, plans: Sequence[StepJudgement]) -> str | None:
    """Why a layout is not looked at; None where it is, and always where every degree was given."""
    workload, world = evaluator.workload, evaluator.cluster.world_size
    if None not in (workload.tensor_parallel, workload.pipeline_parallel, workload.expert_parallel):
        return None
    least = _least(evaluator, layout, world)
    if least > evaluator.capacity_bytes and layout.copy_ranks < world:  # what shares most is judged, to say why
        return f"needs at least {format_gib(least)} GiB, has {format_gib(evaluator.capacity_bytes)}"
    for plan in plans:
        smaller = plan.family.layout
        if smaller is None or standing(plan) != 0 or smaller == layout:
            continue
        if layout.recompute != "none" and replace(layout, recompute="none") == smaller:
            return "fits without recomputation: --checkpointing asks for it"
        within = smaller.tensor <= layout.tensor and smaller.pipeline <= layout.pipeline
        if within and 2 * smaller.copy_ranks < layout.copy_ranks and smaller.expert >= layout.expert:
            return (
                f"a copy is shared by more ranks than it has to be: {plan.title} fits;"
                f" --tp {layout.tensor} --pp {layout.pipeline} asks for it"
            )
    return None


def _least(evaluator: Evaluator, layout: Layout, world: int) -> int:
    """Bytes of the average rank's states: the fullest one holds as much or more."""
    plain = not any(key.startswith("megatron.") for key, _ in evaluator.workload.settings)
    held, shared = (_HELD, _SHARED) if plain else (_LEAST_HELD, _LEAST_SHARED)
    parameters = sum(parameter.numel for parameter in evaluator.provider.spec().parameters)
    # Experts may be shared out further than the rest: as if everything were an expert where there are some.
    ranks = layout.pipeline * max(layout.tensor, layout.expert * layout.expert_tensor)
    return parameters * held // ranks + parameters * shared // world
