"""Requested bytes that stand along a rank's stream, for tests on small numbers."""

import numpy as np

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.trace.events import IntArray


def live(stream: RankStream, micro_batch: int = 1) -> IntArray:
    """Requested bytes after every event."""
    return np.cumsum(stream.event_sign * stream.requested(micro_batch)[stream.event_tensor])


def at_load(stream: RankStream) -> int:
    """Bytes once the model is wrapped; none where nothing is on the device by then."""
    return int(live(stream)[stream.event_segment == 0][-1:].sum())


def at_rest(stream: RankStream) -> list[int]:
    """Bytes at the end of each iteration."""
    return [int(live(stream)[stream.event_segment <= segment][-1]) for segment in stream.step_segments]


def peak(stream: RankStream, segment: int, *, backward: bool = False) -> int:
    """Most bytes in the forward (or only) or the backward part of a segment, what stands at its start included."""
    inside = np.flatnonzero((stream.event_segment == segment) & (stream.event_in_backward == backward))
    return int(live(stream)[max(0, inside[0] - 1) : inside[-1] + 1].max())


def labelled(stream: RankStream, label: str) -> list[tuple[int, int, int]]:
    """Segment, sign and bytes of every event of the storages that a strategy placed under a label."""
    traced = stream.trace.num_tensors * stream.num_passes
    named = {traced + index for index, name in enumerate(stream.labels) if name == label}
    sizes = stream.requested(1)
    return [
        (int(segment), int(sign), int(sizes[tensor]))
        for segment, sign, tensor in zip(stream.event_segment, stream.event_sign, stream.event_tensor, strict=True)
        if int(tensor) in named
    ]
