"""Layouts of Megatron-core's own model that nobody asked for: stages of their own length, several on each rank."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpu_plan.planner.megatron import stages
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.megatron.judge import architecture
from gpu_plan.planner.search.training.piped.step import Judge

_LEAST_LAYERS = 2
"""Layers of a stage at least, of those that are tried unasked with the most stages on a rank: as in recipes of
Megatron-Bridge, which go down to one where layers are large alone."""


def spread(evaluator: Judge, known: Iterable[Family]) -> Iterator[Family]:
    """Families with their layouts as the model's layers allow them, and those with several stages on each rank."""
    for family in known:
        if family.layout is None:
            yield family
            continue
        for virtual in (family.layout.virtual, *several(evaluator, family.layout)):
            yield replace(family, layout=evened(evaluator, replace(family.layout, virtual=virtual)))


def several(evaluator: Judge, layout: Layout) -> tuple[int, ...]:
    """Numbers of stages on each rank that are tried unasked: the fewest, and the most. What ranks wait for falls with
    their number, and what they keep is highest with the fewest; between them lies what lies between."""
    workload = evaluator.workload
    said = (workload.virtual_stages, workload.schedule, layout.first_layers, layout.last_layers)
    if layout.pipeline == 1 or any(one is not None for one in said):
        return ()
    each, rest = divmod(architecture(evaluator).layers, layout.pipeline)
    if rest:
        return (2,) if workload.pipeline_parallel is None and each > 1 else ()
    dividing = [count for count in range(2, each + 1) if each % count == 0]
    most = [count for count in dividing if each // count >= _LEAST_LAYERS]
    return tuple(dict.fromkeys((*dividing[:1], *most[-1:])))


def evened(evaluator: Judge, layout: Layout) -> Layout:
    """With fewer layers at both ends, where stages that nobody asked for do not divide them."""
    if evaluator.workload.pipeline_parallel is not None:
        return layout
    return stages.evened(architecture(evaluator).layers, layout)
