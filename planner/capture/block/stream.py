"""What a block did, as the stream of one rank: replayed and measured like any other."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.capture.block.recorder import BlockMark
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, IntArray, Kind, ModuleLayout
from gpu_plan.planner.trace.recording.fit import Recording, fit
from gpu_plan.planner.trace.recording.recorder import RawTrace

_Mask: TypeAlias = NDArray[np.bool_]
_ACTIVATIONS, _TEMPORARY = CATEGORY_INDEX[Category.ACTIVATIONS], CATEGORY_INDEX[Category.TEMPORARY]
MICRO_BATCH = 1
"""At which a block's stream is to be read: its sizes are what they were, whatever the batch."""


def block_stream(raw: RawTrace) -> RankStream:
    """Events of the whole block in time order.

    Segments: 0 until a model is first called, then one for each stretch of passes and one for each optimizer step.
    """
    recording = Recording(micro_batch=MICRO_BATCH, raw=raw, inputs=(), tokens=MICRO_BATCH)
    trace = fit((recording,), [], [], ModuleLayout(), [])
    segment, backward, steps = _phases(raw)
    trace.category = _categories(raw, backward, np.isin(segment, steps))
    events = np.flatnonzero((trace.kind == Kind.ALLOC) | (trace.kind == Kind.FREE))
    return RankStream(
        trace=trace,
        num_passes=1,
        event_sign=np.where(trace.kind[events] == Kind.ALLOC, 1, -1),
        event_tensor=trace.subject[events],
        event_segment=segment[events],
        event_in_backward=backward[events],
        # Something must end the run: a step without events, where no optimizer took one.
        step_segments=tuple(steps) or (int(segment.max(initial=0)) + 1,),
        fixed=trace.bytes_fixed,
        per_sample=trace.bytes_per_sample,
        cuda_stream=np.zeros(trace.num_tensors, dtype=np.int64),
        category=trace.category,
        labels=[],
        label_modules=[],
    )


def _phases(raw: RawTrace) -> tuple[IntArray, _Mask, list[int]]:
    """For each event its segment and whether it lies in backward; and which segments are optimizer steps.

    What follows a backward pass belongs to the step when one comes next: clipping, unscaling.
    """
    marks = [(at, raw.subject[at]) for at, kind in enumerate(raw.kind) if kind == Kind.MARK]
    segment = np.zeros(len(raw.kind), dtype=np.int64)
    backward = np.zeros(len(raw.kind), dtype=np.bool_)
    steps: list[int] = []
    number = 0
    for index, (at, mark) in enumerate(marks):
        following = marks[index + 1][1] if index + 1 < len(marks) else None
        in_step = mark == BlockMark.STEP or (mark == BlockMark.BACKWARD_END and following == BlockMark.STEP)
        begins = mark in (BlockMark.FORWARD, BlockMark.BACKWARD) and (number == 0 or number in steps)
        if begins or (in_step and number not in steps):
            number += 1
            if in_step:
                steps.append(number)
        segment[at:] = number
        backward[at:] = number not in steps and mark in (BlockMark.BACKWARD, BlockMark.BACKWARD_END)
    return segment, backward, steps


def _categories(raw: RawTrace, backward: _Mask, step: _Mask) -> IntArray:
    """What a pass makes and frees again before a backward pass begins is temporary, not an activation."""
    categories = np.asarray([tensor.category for tensor in raw.tensors], dtype=np.int64)
    born: dict[int, int] = {}
    backward_begins = 0
    for at, (kind, subject) in enumerate(zip(raw.kind, raw.subject, strict=True)):
        if kind == Kind.MARK and subject == BlockMark.BACKWARD:
            backward_begins = at
        elif kind == Kind.ALLOC:
            born[subject] = at
            if categories[subject] == _ACTIVATIONS and (backward[at] or step[at]):
                categories[subject] = _TEMPORARY
        elif kind == Kind.FREE and categories[subject] == _ACTIVATIONS and born[subject] >= backward_begins:
            categories[subject] = _TEMPORARY
    return categories
