"""Layers over the stages of a Megatron-core pipeline.

megatron/core/transformer/transformer_block.py: get_num_layers_to_build; transformer_layer.py:
get_transformer_layer_offset.
"""

from dataclasses import replace

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.pipeline.stages import StageCut


def refused(layers: int, layout: Layout) -> str | None:
    """Why layers cannot be shared out so, in one line; None where they can."""
    asked = f"--pp {layout.pipeline}" + (f" --vpp {layout.virtual}" if layout.virtual > 1 else "")
    if layers < layout.stages:
        return f"the model has {layers} layers, fewer than the {layout.stages} stages of {asked}"
    given = [count for count in (layout.first_layers, layout.last_layers) if count is not None]
    if layout.embedding_counts or layout.loss_counts:
        return _refused_counts(layers, layout, asked, given=bool(given))
    if given and layout.pipeline == 1:
        return "--set megatron.first_layers and last_layers are about a pipeline: add --pp"
    between, rest = (layout.pipeline - len(given)) * layout.virtual, layers - sum(given)
    odd = any(count % layout.virtual for count in given)
    if odd or (between == 0 and rest) or rest < between or (between and rest % between):
        share = "as many" if not given else "what is left in equal parts"
        verb = "do" if layout.virtual > 1 else "does"
        whole = f"{asked} {verb} not divide {layers} layers: Megatron gives each of {layout.stages} stages {share}"
        return whole if given else whole + _uneven(layers, layout)
    return None


def _refused_counts(layers: int, layout: Layout, asked: str, *, given: bool) -> str | None:
    named = "--set megatron.embedding_counts and loss_counts"
    if layout.pipeline == 1:
        return f"{named} are about a pipeline: add --pp"
    if given:
        return f"{named} are another way than first_layers and last_layers: give one of them"
    counted = layers + layout.embedding_counts + layout.loss_counts
    if counted % layout.stages or counted == layout.stages:
        return f"{asked} does not divide {layers} layers and what counts as one: {counted} over {layout.stages} stages"
    return None


def _uneven(layers: int, layout: Layout) -> str:
    """Layers for both ends with which the others come out equal, in words; nothing where there are none."""
    found = _ends(layers, layout)
    if found is None:
        return ""
    first, last, each = found
    return f"; --set megatron.first_layers={first} and megatron.last_layers={last} leave {each}"


def evened(layers: int, layout: Layout) -> Layout:
    """The layout with ends of which the other stages come out equal, where layers do not divide over them and nobody
    said otherwise."""
    said = (layout.first_layers, layout.last_layers) != (None, None) or layout.embedding_counts or layout.loss_counts
    found = None if said or layers % layout.stages == 0 else _ends(layers, layout)
    return layout if found is None else replace(layout, first_layers=found[0], last_layers=found[1])


def _ends(layers: int, layout: Layout) -> tuple[int, int, int] | None:
    """Layers of the first and of the last rank, and of each stage between; None where there are none."""
    virtual, between = layout.virtual, (layout.pipeline - 2) * layout.virtual
    if between < 1:
        return None
    found = []
    for each in range(1, layers // between + 1):
        ends, rest = divmod(layers - each * between, virtual)
        first, last = (ends - ends // 2) * virtual, ends // 2 * virtual
        if not rest and last:
            found.append((max(abs(first - each * virtual), abs(last - each * virtual)), first, last, each))
    return min(found)[1:] if found else None


def cuts(layers: int, layout: Layout) -> tuple[StageCut, ...]:
    """Equal stages, but for the first and the last pipeline rank where the layout says how many they have, or the first
    and the last stage where embedding and loss count as a layer."""
    if layout.embedding_counts or layout.loss_counts:
        return _counted(layers, layout)
    first, last = layout.first_layers, layout.last_layers
    between = layout.pipeline - (first is not None) - (last is not None)
    each = [(layers - (first or 0) - (last or 0)) // max(1, between)] * layout.pipeline
    each[0] = each[0] if first is None else first
    each[-1] = each[-1] if last is None else last
    found, start = [], 0
    for stage in range(layout.stages):
        count = each[stage % layout.pipeline] // layout.virtual
        found.append(StageCut(first=start, end=start + count, layers=layers))
        start += count
    return tuple(found)


def _counted(layers: int, layout: Layout) -> tuple[StageCut, ...]:
    each = [(layers + layout.embedding_counts + layout.loss_counts) // layout.stages] * layout.stages
    each[0] -= layout.embedding_counts
    each[-1] -= layout.loss_counts
    ends = [sum(each[: number + 1]) for number in range(layout.stages)]
    return tuple(StageCut(first=end - count, end=end, layers=layers) for end, count in zip(ends, each, strict=True))
