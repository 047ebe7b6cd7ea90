"""A simulated run as the timeline of one of its steps."""

import numpy as np

from gpu_plan.planner.memory.allocator.result import AllocatorResult
from gpu_plan.planner.memory.profile import alive_at, describe, phase_at
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.plan.timeline import Moment, Timeline
from gpu_plan.planner.trace.events import CATEGORIES


def timeline(stream: RankStream, micro_batch: int, result: AllocatorResult, *, title: str, capacity: int) -> Timeline:
    """Of the iteration that peaks; `result` is the simulation of the same stream at the same micro batch.

    Where the run dies, the timeline ends there.
    """
    allocated, reserved = result.allocated, result.reserved
    iteration, first, last = iteration_at(stream, int(np.argmax(allocated)), len(allocated))
    sizes = result.block_bytes(len(stream.fixed))
    standing = alive_at(stream, first - 1) if first else np.zeros(len(sizes), dtype=np.int64)
    start = np.bincount(stream.category, weights=sizes * standing, minlength=len(CATEGORIES))
    moments = []
    described, names = {}, dict(stream.names)
    for event in range(first, last):
        tensor = int(stream.event_tensor[event])
        if tensor not in described:
            described[tensor] = describe(stream, tensor, int(sizes[tensor]), micro_batch)
        moments.append(
            Moment(
                phase=names.get(int(stream.event_segment[event])) or str(phase_at(stream, event)),
                category=str(described[tensor].category),
                module=described[tensor].module,
                operator=" ".join(filter(None, (described[tensor].operator, described[tensor].shape))),
                change=int(result.charged[event]),
                allocated=int(allocated[event]),
                reserved=int(reserved[event]),
            )
        )
    return Timeline(
        title=title,
        iteration=iteration,
        start={str(category): int(start[index]) for index, category in enumerate(CATEGORIES)},
        start_reserved=int(reserved[first - 1]) if first else 0,
        moments=tuple(moments),
        peak=int(np.argmax(allocated[first:last])),
        capacity=capacity,
        dies=result.oom_at is not None,
    )


def iteration_at(stream: RankStream, peak: int, handled: int) -> tuple[int, int, int]:
    """Number, first event and the event behind the last of the iteration that holds an event.

    Phases of several models belong to the last one, which is shown whatever it is that peaks.
    """
    ends = [int(np.searchsorted(stream.event_segment, step, side="right")) for step in stream.step_segments]
    if stream.evaluation_segment:
        ends.append(len(stream.event_segment))
    starts = [int(np.searchsorted(stream.event_segment, 1)), *ends[:-1]]
    if stream.names and handled == len(stream.event_segment):
        peak, ends[-1] = handled - 1, handled
    number = next((index for index, end in enumerate(ends) if peak < end), len(ends) - 1)
    first, last = starts[number], min(ends[number], handled)
    # A run that dies while it is loaded has no step: what there was is shown.
    return (number + 1, first, last) if first < last else (0, 0, handled)
