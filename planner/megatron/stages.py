"""Layers over the stages of a Megatron-core pipeline.

megatron/core/transformer/transformer_block.py: get_num_layers_to_build; transformer_layer.py:
get_transformer_layer_offset.
"""

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.pipeline.stages import StageCut


def refused(layers: int, layout: Layout) -> str | None:
    """Why layers cannot be shared out so, in one line; None where they can."""
    asked = f"--pp {layout.pipeline}" + (f" --vpp {layout.virtual}" if layout.virtual > 1 else "")
    if layers < layout.stages:
        return f"the model has {layers} layers, fewer than the {layout.stages} stages of {asked}"
    if layers % layout.stages:
        return f"{asked} are {layout.stages} stages, which do not divide {layers} layers: Megatron gives each as many"
    return None


def cuts(layers: int, layout: Layout, first: int | None = None, last: int | None = None) -> tuple[StageCut, ...]:
    """Equal stages; `first` and `last` where `--decoder-first-pipeline-num-layers` and `-last-` say how many."""
    stages = layout.stages
    each = [layers // stages] * stages
    if first is not None or last is not None:
        between = stages - (first is not None) - (last is not None)
        rest = layers - (first or 0) - (last or 0)
        each = [rest // max(1, between)] * stages
        each[0] = each[0] if first is None else first
        each[-1] = each[-1] if last is None else last
    found, start = [], 0
    for count in each:
        found.append(StageCut(first=start, end=start + count, layers=layers))
        start += count
    return tuple(found)
