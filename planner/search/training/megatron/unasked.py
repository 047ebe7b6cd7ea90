"""Layouts of Megatron-core's own model that nobody asked for: stages of their own length, several on each rank."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpu_plan.planner.megatron import stages
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.megatron.judge import architecture
from gpu_plan.planner.search.training.piped.step import Judge

_LEAST_LAYERS = 4
"""Layers of a stage at least, of several that are tried unasked on each rank, where there are as many."""


def spread(evaluator: Judge, known: Iterable[Family]) -> Iterator[Family]:
    """Families with their layouts as the model's layers allow them, and those with several stages on each rank."""
    for family in known:
        if family.layout is None:
            yield family
            continue
        for virtual in (family.layout.virtual, *several(evaluator, family.layout)):
            yield replace(family, layout=evened(evaluator, replace(family.layout, virtual=virtual)))


def several(evaluator: Judge, layout: Layout) -> tuple[int, ...]:
    """The number of stages on each rank that is tried unasked, if any: what ranks wait for, and what they keep beside
    one stage, falls with their number, and what they send grows with it."""
    workload = evaluator.workload
    said = (workload.virtual_stages, workload.schedule, layout.first_layers, layout.last_layers)
    if layout.pipeline == 1 or any(one is not None for one in said):
        return ()
    each, rest = divmod(architecture(evaluator).layers, layout.pipeline)
    if rest:
        return (2,) if workload.pipeline_parallel is None and each > 1 else ()
    dividing = [count for count in range(2, each + 1) if each % count == 0]
    most = [count for count in dividing if each // count >= _LEAST_LAYERS]
    return tuple(most[-1:] or dividing[:1])


def evened(evaluator: Judge, layout: Layout) -> Layout:
    """With fewer layers at both ends, where stages that nobody asked for do not divide them."""
    if evaluator.workload.pipeline_parallel is not None:
        return layout
    return stages.evened(architecture(evaluator).layers, layout)
