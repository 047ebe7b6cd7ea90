"""What the traced step itself allocates and frees, where its marks lie, and what it leaves behind."""

import weakref
from collections.abc import Callable
from dataclasses import field

import numpy as np

from gpu_plan.planner.memory.lines import Peaks
from gpu_plan.planner.memory.stream.moments import SEGMENT
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray, Kind, Mark, StepTrace
from gpu_plan.planner.trace.remembered import of_trace


@dataclass(slots=True)
class TracedEvents:
    """Columns of events, piece by piece."""

    at: list[IntArray] = field(default_factory=list)
    signs: list[IntArray] = field(default_factory=list)
    tensors: list[IntArray] = field(default_factory=list)

    def add(self, segment: int, keys: IntArray, signs: IntArray, tensors: IntArray) -> None:
        """Events of one segment."""
        self.at.append(segment * SEGMENT + keys)
        self.signs.append(signs)
        self.tensors.append(tensors)


_Events = tuple[IntArray, IntArray, IntArray]
_events: dict[tuple[int, int], tuple[_Events, list[weakref.ref[IntArray]]]] = {}
"""Of the columns of traces that there are, which several may share."""


def allocations(trace: StepTrace) -> _Events:
    """Position, sign and tensor of every allocation and free of a trace."""
    key = id(trace.kind), id(trace.subject)
    if key not in _events:
        at = np.flatnonzero((trace.kind == Kind.ALLOC) | (trace.kind == Kind.FREE))
        made = at, np.where(trace.kind[at] == Kind.ALLOC, 1, -1), trace.subject[at]
        gone = [weakref.ref(column, lambda _: _events.pop(key, None)) for column in (trace.kind, trace.subject)]
        _events[key] = made, gone
    return _events[key][0]


@of_trace
def least_peaks(trace: StepTrace) -> Callable[[int], int]:
    """By micro batch, bytes that stand at the highest of the first pass's events in whatever strategy's stream: of what
    a trace allocates strategies free gradients alone."""
    _, sign, tensor = allocations(trace)
    own = trace.tensor_parameter[tensor] < 0
    signs, tensors, peaks = sign[own], tensor[own], Peaks()
    fixed, per_sample = trace.bytes_fixed, trace.bytes_per_sample  # not the trace, which what is kept of it would hold
    return lambda batch: peaks.of(batch, signs, tensors, fixed, per_sample)


@of_trace
def marks(trace: StepTrace) -> dict[Mark, int]:
    """Where each point of the loop lies."""
    return {mark: trace.mark_position(mark) for mark in Mark if trace.has_mark(mark)}


@of_trace
def gradient_positions(trace: StepTrace) -> dict[int, int]:
    at = np.flatnonzero(trace.kind == Kind.GRADIENT)
    return {int(trace.subject[position]): int(position) for position in at}


@of_trace
def gradient_tensors(trace: StepTrace) -> dict[int, int]:
    made = np.flatnonzero(trace.tensor_parameter >= 0)
    return {int(trace.tensor_parameter[tensor]): int(tensor) for tensor in made}


@of_trace
def carried_storages(trace: StepTrace) -> IntArray:
    """Storages that the loop still holds when a pass is over: outputs and loss, not gradients."""
    alive = np.zeros(trace.num_tensors, dtype=np.int64)
    np.add.at(alive, trace.subject[trace.kind == Kind.ALLOC], 1)
    np.add.at(alive, trace.subject[trace.kind == Kind.FREE], -1)
    alive[trace.held] = 0  # never bound anew: every step leaves its own behind
    return np.flatnonzero((alive > 0) & (trace.tensor_parameter < 0))
