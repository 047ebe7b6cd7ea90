"""One rank's allocations over two iterations: the traced step with what a strategy adds and takes away.

The traced events are kept as arrays and only referred to; a strategy's own allocations are inserted at points
of the step. `RankStream.live` is then a cumulative sum for any micro batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.memory.schedule import RUNS_AHEAD, Moment, Schedule, Waits
from gpu_plan.planner.trace.events import CATEGORIES, CATEGORY_INDEX, Category, IntArray, Kind, Mark, StepTrace
from gpu_plan.planner.trace.remembered import of_trace

BLOCK = 512
"""CUDA's caching allocator rounds every request up to this many bytes (pytorch c10/cuda/CUDACachingAllocator.cpp)."""


class Phase(StrEnum):
    """Where in the run a moment lies."""

    LOAD = "load"
    FORWARD = "forward"
    BACKWARD = "backward"
    STEP = "optimizer step"
    PREFILL = "prefill"
    DECODE = "decode"
    EVALUATION = "evaluation"
    ROLLOUT = "rollout"
    SCORING = "log-probabilities"
    REWARDS = "rewards"
    SYNC = "weight sync"
    INFERENCE = "inference"
    """A forward pass of one of several models."""
    UPDATE = "update"
    """An iteration of another model than the one that is searched."""


TRAINING_PHASES = (Phase.LOAD, Phase.FORWARD, Phase.BACKWARD, Phase.STEP)


class Point(NamedTuple):
    """A moment: segment of the run, and place inside it."""

    segment: int
    key: int


class Handle(NamedTuple):
    """A storage that a strategy placed."""

    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One micro step inside the run."""

    segment: int
    iteration: int
    micro_step: int
    last: bool
    """Whether gradients are reduced after it (the last micro step of an accumulation)."""


@dataclass(slots=True)
class _Placed:
    category: list[int] = field(default_factory=list)
    fixed: list[int] = field(default_factory=list)
    cuda_stream: list[int] = field(default_factory=list)
    per_sample: list[int] = field(default_factory=list)
    label: list[str] = field(default_factory=list)
    module: list[str] = field(default_factory=list)
    event_segment: list[int] = field(default_factory=list)
    event_key: list[int] = field(default_factory=list)
    event_sign: list[int] = field(default_factory=list)
    event_tensor: list[int] = field(default_factory=list)
    waits: dict[int, Waits] = field(default_factory=dict)
    """Of events that free a block on which a stream was recorded."""


class StreamBuilder:
    """Lays out a run of two iterations: load, then for each iteration its micro steps and the optimizer step.

    Of an accumulation's micro steps the first and one later one are laid out: the rest repeat the later one.
    """

    def __init__(self, trace: StepTrace, accumulation_steps: int) -> None:
        self.trace = trace
        self._placed = _Placed()
        self._last_key: dict[int, int] = {}
        self.passes: list[Pass] = []
        self.steps: list[int] = []
        self._lay_out(accumulation_steps)
        self._marks = _marks(trace)
        self._gradient_at = _gradient_positions(trace)
        self._gradient_tensor = _gradient_tensors(trace)
        self._hand_over_inputs()

    def _lay_out(self, accumulation_steps: int) -> None:
        """Passes and optimizer steps, each a segment of the run."""
        segment = 1
        micro_steps = min(accumulation_steps, 2)
        for iteration in range(2):
            for micro_step in range(micro_steps):
                self.passes.append(
                    Pass(
                        segment=segment,
                        iteration=iteration,
                        micro_step=micro_step,
                        last=micro_step == micro_steps - 1,
                    )
                )
                segment += 1
            self.steps.append(segment)
            segment += 1

    def _segment(self, in_pass: Pass, event: int) -> int:
        """Segment in which a pass comes to a traced event."""
        return in_pass.segment

    # -- points ------------------------------------------------------------------------------------------

    def at_load(self) -> Point:
        """While the model is built and wrapped."""
        return Point(0, self._next(0))

    def at_step(self, iteration: int) -> Point:
        """The next moment of an iteration's optimizer step."""
        segment = self.steps[iteration]
        return Point(segment, self._next(segment))

    def _next(self, segment: int) -> int:
        self._last_key[segment] = self._last_key.get(segment, 0) + 1
        return self._last_key[segment]

    def before(self, in_pass: Pass, event: int) -> Point:
        """Just before a traced event."""
        return Point(self._segment(in_pass, event), 2 * event)

    def after(self, in_pass: Pass, event: int) -> Point:
        """Just after a traced event."""
        return Point(self._segment(in_pass, event), 2 * event + 2)

    def at_mark(self, in_pass: Pass, mark: Mark) -> Point:
        """At a point of the loop."""
        return self.before(in_pass, self._marks[mark])

    def at_end(self, in_pass: Pass) -> Point:
        """When the micro step is over."""
        return self.after(in_pass, self.trace.num_events)

    def gradient_event(self, parameter: int) -> int | None:
        """Event at which a parameter's gradient is complete, or None when it gets none."""
        return self._gradient_at.get(parameter)

    # -- allocations --------------------------------------------------------------------------------------

    def alloc(
        self, at: Point, nbytes: int, category: Category, label: str, module: str = "", *, cuda_stream: int = 0
    ) -> Handle:
        """Places a storage of `nbytes`; `cuda_stream` names the stream whose pool it comes from, 0 the default one."""
        return self._alloc(at, nbytes, 0, category, label, module, cuda_stream)

    def alloc_each(
        self, at: Point, sizes: Iterable[int], category: Category, label: str, module: str = ""
    ) -> tuple[Handle, ...]:
        """Places several storages at once."""
        return tuple(self.alloc(at, size, category, label, module) for size in sizes)

    def free_each(self, at: Point, handles: Iterable[Handle]) -> None:
        """Gives several storages back."""
        for handle in handles:
            self.free(at, handle)

    def _alloc(
        self, at: Point, fixed: int, per_sample: int, category: Category, label: str, module: str, cuda_stream: int = 0
    ) -> Handle:
        placed = self._placed
        tensor = len(placed.fixed)
        placed.category.append(CATEGORY_INDEX[category])
        placed.fixed.append(fixed)
        placed.per_sample.append(per_sample)
        placed.cuda_stream.append(cuda_stream)
        placed.label.append(label)
        placed.module.append(module)
        placed.event_segment.append(at.segment)
        placed.event_key.append(at.key)
        placed.event_sign.append(1)
        placed.event_tensor.append(tensor)
        return Handle(tensor)

    def free(self, at: Point, handle: Handle, waits: Waits | None = None) -> None:
        """The storage goes back to the allocator; `waits`: which cannot hand it out before the device is done."""
        if waits is not None:
            self._placed.waits[len(self._placed.event_tensor)] = waits
        self._event(at, -1, handle.tensor)

    def moment(self, at: Point) -> Moment:
        """A point, behind what was placed there so far."""
        return at.segment, at.key, len(self._placed.event_tensor)

    def transient(self, at: Point, nbytes: int, category: Category, label: str) -> None:
        """A storage that lives for one call."""
        self.free(at, self.alloc(at, nbytes, category, label))

    def free_gradient(self, at: Point, in_pass: Pass, parameter: int, waits: Waits | None = None) -> None:
        """The traced storage of a parameter's gradient goes away; `waits` as in `free`."""
        tensor = self._gradient_tensor.get(parameter)
        if tensor is not None:
            if waits is not None:
                self._placed.waits[len(self._placed.event_tensor)] = waits
            self.free_traced(at, in_pass, tensor)

    def free_traced(self, at: Point, in_pass: Pass, tensor: int) -> None:
        """A traced storage of a pass goes away, which the trace itself leaves alive."""
        self._event(at, -1, -1 - (self._number(in_pass) * self.trace.num_tensors + tensor))

    def _number(self, in_pass: Pass) -> int:
        return self.passes.index(in_pass)

    def _event(self, at: Point, sign: int, tensor: int) -> None:
        placed = self._placed
        placed.event_segment.append(at.segment)
        placed.event_key.append(at.key)
        placed.event_sign.append(sign)
        placed.event_tensor.append(tensor)

    def _hand_over_inputs(self) -> None:
        """Each batch lives until the loop's variable takes the next one."""
        before: list[Handle] = []
        for in_pass in self.passes:
            start = Point(in_pass.segment, -1)
            batch = [
                self._alloc(start, fixed, per_sample, Category.INPUTS, name, "")
                for name, per_sample, fixed in self.trace.inputs
            ]
            for handle in before:
                self.free(start, handle)
            before = batch

    # -- result --------------------------------------------------------------------------------------------

    def build(self) -> "RankStream":
        """The finished stream."""
        segments = self._pass_segments()
        return _assemble(self.trace, self._traced_events(), segments, len(self.passes), self.steps, self._placed)

    def _pass_segments(self) -> list[int]:
        """Segments in which passes run."""
        return [in_pass.segment for in_pass in self.passes]

    def _traced_events(self) -> "TracedEvents":
        """What the traced step itself allocates and frees, pass by pass."""
        base_at, base_sign, base_subject = allocations(self.trace)
        carried = carried_storages(self.trace)
        bound_key = 2 * self.trace.mark_position(Mark.OUTPUTS_BOUND)
        events = TracedEvents()
        for index, in_pass in enumerate(self.passes):
            offset = index * self.trace.num_tensors
            events.add(in_pass.segment, 2 * base_at + 1, base_sign, base_subject + offset)
            if index > 0:
                # What the loop still held from the pass before goes when its variables are bound anew.
                gone = carried + offset - self.trace.num_tensors
                events.add(in_pass.segment, np.full(len(gone), bound_key), np.full(len(gone), -1), gone)
        return events


@dataclass(slots=True)
class TracedEvents:
    """Columns of events, piece by piece."""

    segments: list[IntArray] = field(default_factory=list)
    keys: list[IntArray] = field(default_factory=list)
    signs: list[IntArray] = field(default_factory=list)
    tensors: list[IntArray] = field(default_factory=list)

    def add(self, segment: int, keys: IntArray, signs: IntArray, tensors: IntArray) -> None:
        """Events of one segment."""
        self.segments.append(np.full(len(keys), segment, dtype=np.int64))
        self.keys.append(keys)
        self.signs.append(signs)
        self.tensors.append(tensors)


@of_trace
def allocations(trace: StepTrace) -> tuple[IntArray, IntArray, IntArray]:
    """Position, sign and tensor of every allocation and free of a trace."""
    at = np.flatnonzero((trace.kind == Kind.ALLOC) | (trace.kind == Kind.FREE))
    return at, np.where(trace.kind[at] == Kind.ALLOC, 1, -1), trace.subject[at]


@of_trace
def _marks(trace: StepTrace) -> dict[Mark, int]:
    return {mark: trace.mark_position(mark) for mark in Mark}


@of_trace
def _gradient_positions(trace: StepTrace) -> dict[int, int]:
    at = np.flatnonzero(trace.kind == Kind.GRADIENT)
    return {int(trace.subject[position]): int(position) for position in at}


@of_trace
def _gradient_tensors(trace: StepTrace) -> dict[int, int]:
    made = np.flatnonzero(trace.tensor_parameter >= 0)
    return {int(trace.tensor_parameter[tensor]): int(tensor) for tensor in made}


@dataclass(slots=True, kw_only=True)
class RankStream:
    """Events in time order; tensor columns hold the traced storages of every pass, then the strategy's own."""

    trace: StepTrace
    num_passes: int
    event_sign: IntArray
    event_tensor: IntArray
    event_segment: IntArray
    event_in_backward: NDArray[np.bool_]
    step_segments: tuple[int, ...]
    fixed: IntArray
    per_sample: IntArray
    cuda_stream: IntArray
    """Stream whose pool each storage comes from: 0 the default one, others where a strategy says so."""
    category: IntArray
    labels: list[str]
    label_modules: list[str]
    event_return: IntArray | None = None
    """Where blocks wait for the device, for each schedule in which the host runs ahead [schedules, events]: the event
    from which on a freed block can be handed out again. None where none waits."""
    evaluation_segment: int = 0
    """Segment in which batches are evaluated, after all training; 0 where none are."""
    between: tuple[tuple[int, Phase], ...] = ()
    """Segments behind all training in which the job does something else, and what."""
    names: tuple[tuple[int, str], ...] = ()
    """What those segments are called, where somebody named them."""
    phases: tuple[Phase, ...] = ()
    """Of a generation: the phase of each segment. Empty for training, whose events tell it."""

    def sizes(self, micro_batch: int) -> IntArray:
        """Allocator bytes charged for every storage."""
        return -(-self.requested(micro_batch) // BLOCK) * BLOCK

    def requested(self, micro_batch: int) -> IntArray:
        """Bytes asked for, before the allocator rounds them up."""
        return self.fixed + self.per_sample * micro_batch

    def returns(self, schedule: Schedule) -> IntArray | None:
        """Event from which on what each event frees can be handed out again; None where that is at once."""
        if schedule is Schedule.WAITS or self.event_return is None:
            return None
        returns: IntArray = self.event_return[schedule]
        return returns

    def live(self, micro_batch: int) -> IntArray:
        """Allocated bytes after every event."""
        return np.cumsum(self.event_sign * self.sizes(micro_batch)[self.event_tensor])


def _assemble(
    trace: StepTrace,
    base: TracedEvents,
    pass_segments: list[int],
    num_passes: int,
    steps: list[int],
    placed: _Placed,
) -> RankStream:
    own = len(placed.fixed)
    traced = trace.num_tensors * num_passes
    segments, keys, signs, tensors = base.segments, base.keys, base.signs, base.tensors
    own_tensor = np.asarray(placed.event_tensor, dtype=np.int64)
    segments.append(np.asarray(placed.event_segment, dtype=np.int64))
    keys.append(np.asarray(placed.event_key, dtype=np.int64))
    signs.append(np.asarray(placed.event_sign, dtype=np.int64))
    tensors.append(np.where(own_tensor >= 0, own_tensor + traced, -1 - own_tensor))
    segment, key = np.concatenate(segments), np.concatenate(keys)
    order = np.lexsort((np.arange(len(key)), key, segment))
    backward_key = 2 * trace.mark_position(Mark.BACKWARD)
    is_pass = np.isin(segment, pass_segments)
    return RankStream(
        trace=trace,
        num_passes=num_passes,
        event_sign=np.concatenate(signs)[order],
        event_tensor=np.concatenate(tensors)[order],
        event_segment=segment[order],
        event_in_backward=(is_pass & (key >= backward_key))[order],
        event_return=_returns(placed, segment, key, order) if placed.waits else None,
        step_segments=tuple(steps),
        fixed=np.concatenate([np.tile(trace.bytes_fixed, num_passes), _column(placed.fixed, own)]),
        per_sample=np.concatenate([np.tile(trace.bytes_per_sample, num_passes), _column(placed.per_sample, own)]),
        cuda_stream=np.concatenate([np.zeros(traced, dtype=np.int64), _column(placed.cuda_stream, own)]),
        category=np.concatenate([np.tile(trace.category, num_passes), _column(placed.category, own)]),
        labels=placed.label,
        label_modules=placed.module,
    )


def _returns(placed: _Placed, segment: IntArray, key: IntArray, order: IntArray) -> IntArray:
    """Position of the first event behind each return, for every event in its place; by itself where none waits."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    own = len(order) - len(placed.event_tensor)
    returns = np.tile(np.arange(len(order)), (len(RUNS_AHEAD), 1))
    for schedule in RUNS_AHEAD:
        at = place[own + np.asarray(list(placed.waits), dtype=np.int64)]
        until = [waits.until.get(schedule) for waits in placed.waits.values()]
        known = [moment for moment in until if moment is not None]
        # A moment stands before the event that was placed next.
        marks = np.asarray(known, dtype=np.int64).reshape(len(known), 3)
        number = np.concatenate([np.arange(len(order)), own + marks[:, 2] - 0.5])
        both = np.lexsort((number, np.concatenate([key, marks[:, 1]]), np.concatenate([segment, marks[:, 0]])))
        before = np.cumsum(both < len(order))
        position = np.empty(len(both), dtype=np.int64)
        position[both] = before
        returns[schedule, at[[moment is None for moment in until]]] = len(order)
        returns[schedule, at[[moment is not None for moment in until]]] = position[len(order) :]
    return returns


def _column(values: list[int], length: int) -> IntArray:
    column = np.asarray(values, dtype=np.int64)
    return column.reshape(length)


@of_trace
def carried_storages(trace: StepTrace) -> IntArray:
    """Storages that the loop still holds when a pass is over: outputs and loss, not gradients."""
    alive = np.zeros(trace.num_tensors, dtype=np.int64)
    np.add.at(alive, trace.subject[trace.kind == Kind.ALLOC], 1)
    np.add.at(alive, trace.subject[trace.kind == Kind.FREE], -1)
    alive[trace.held] = 0  # never bound anew: every step leaves its own behind
    return np.flatnonzero((alive > 0) & (trace.tensor_parameter < 0))


__all__ = [
    "BLOCK",
    "CATEGORIES",
    "TRAINING_PHASES",
    "Handle",
    "Pass",
    "Phase",
    "Point",
    "RankStream",
    "StreamBuilder",
    "carried_storages",
]
