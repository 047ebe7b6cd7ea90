"""In which order a rank of Megatron-core runs its micro batches.

megatron/core/pipeline_parallel/schedules.py: forward_backward_no_pipelining,
forward_backward_pipelining_without_interleaving, forward_backward_pipelining_with_interleaving (get_schedule_table,
get_pp_rank_microbatches).
"""

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.pipeline.schedules import Action, Kind


def refused(layout: Layout, micro_batches: int) -> str | None:
    """Why the interleaved schedule cannot take so many micro batches, in one line; None where it can."""
    if layout.group is not None and (layout.virtual == 1 or layout.group < layout.pipeline):
        why = "is about several stages a rank: add --vpp" if layout.virtual == 1 else "is fewer than the pipeline ranks"
        more = "" if layout.virtual == 1 else f": give at least {layout.pipeline}"
        return f"--set megatron.group_size={layout.group} {why}{more}"
    group = layout.group_size
    rest = micro_batches % group
    if layout.virtual == 1 or (micro_batches >= group and (rest == 0 or rest >= layout.pipeline)):
        return None
    each = f"{group}, one for each pipeline rank" if layout.group is None else f"{group}"
    return (
        f"Megatron's interleaved schedule takes micro batches in groups of {each}, not {micro_batches}:"
        f" give --grad-accum {micro_batches - rest + group}"
    )


def actions(layout: Layout, rank: int, micro_batches: int) -> tuple[Action, ...]:
    """What one rank computes in a step; stages are numbered over the whole pipeline."""
    if layout.virtual > 1:
        return _interleaved(layout, rank, micro_batches)
    ahead = min(layout.pipeline - rank - 1, micro_batches)
    order = [Action(Kind.FORWARD, rank, index) for index in range(ahead)]
    for index in range(micro_batches):
        if ahead + index < micro_batches:
            order.append(Action(Kind.FORWARD, rank, ahead + index))
        order.append(Action(Kind.BACKWARD, rank, index))
    return tuple(order)


def _interleaved(layout: Layout, rank: int, micro_batches: int) -> tuple[Action, ...]:
    """Groups of micro batches through every chunk of a rank, backwards through the chunks in the other order."""
    group, chunks = layout.group_size, layout.virtual
    table = [
        (chunk, index)
        for start in range(0, micro_batches, group)
        for chunk in range(chunks)
        for index in range(start, min(start + group, micro_batches))
    ]
    ahead = min((layout.pipeline - rank - 1) * 2 + (chunks - 1) * group, len(table))

    def forward(number: int) -> Action:
        chunk, index = table[number]
        return Action(Kind.FORWARD, chunk * layout.pipeline + rank, index)

    def backward(number: int) -> Action:
        chunk, index = table[number]
        return Action(Kind.BACKWARD, (chunks - 1 - chunk) * layout.pipeline + rank, index)

    order = [forward(number) for number in range(ahead)]
    for number in range(len(table)):
        if ahead + number < len(table):
            order.append(forward(ahead + number))
        order.append(backward(number))
    return tuple(order)
