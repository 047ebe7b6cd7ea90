"""Figures of a trace and of a measured CPU step, side by side."""

from dataclasses import dataclass

import numpy as np

from planner.trace.events import Kind, Mark, StepTrace
from tests.support.cpu_reference import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Bytes above what stood before the step (parameters, buffers and inputs)."""

    peak: int
    forward_end: int
    """When the loss is bound, before backward."""
    backward_end: int


def replayed(trace: StepTrace, micro_batch: int) -> Figures:
    """The CPU allocator hands out what is asked for, so the live bytes are a running sum."""
    nbytes = trace.tensor_bytes(micro_batch)
    storage = (trace.kind == Kind.ALLOC) | (trace.kind == Kind.FREE)
    sizes = nbytes[np.where(storage, trace.subject, 0)]
    signed = np.where(trace.kind == Kind.ALLOC, sizes, np.where(trace.kind == Kind.FREE, -sizes, 0))
    live = np.cumsum(signed)
    return Figures(
        peak=int(live.max()),
        forward_end=int(live[trace.mark_position(Mark.OUTPUTS_BOUND)]),
        backward_end=int(live[trace.mark_position(Mark.BACKWARD_END)]),
    )


def measured(reference: Reference, skip: frozenset[int] = frozenset()) -> Figures:
    """Figures of a real step; `skip` holds indices of changes that are left out (`host_scalars`)."""
    live = np.cumsum([0 if i in skip else c.nbytes for i, c in enumerate(reference.changes)])
    return Figures(
        peak=int(live.max()),
        forward_end=int(live[reference.marks["bound"] - 1]),
        backward_end=int(live[reference.marks["backward_end"] - 1]),
    )
