"""One rank's allocations over two iterations: the traced step with what a strategy adds and takes away.

The traced events are kept as arrays and only referred to; a strategy's own allocations are inserted at points
of the step. `RankStream.live` is then a cumulative sum for any micro batch.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.memory.lead import History
from gpu_plan.planner.memory.lines import BLOCK, Peaks
from gpu_plan.planner.memory.schedule import RUNS_AHEAD, DeviceStreams, Did, Moment, Schedule, Waits
from gpu_plan.planner.trace.events import CATEGORIES, CATEGORY_INDEX, Category, IntArray, Kind, Mark, StepTrace
from gpu_plan.planner.trace.remembered import of_trace


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


Point = NewType("Point", int)
"""A moment: segment of the run and place inside it, in one number. Thousands are made for a rank, and sorted."""

Handle = NewType("Handle", int)
"""A storage that a strategy placed: its number."""

_SEGMENT = 1 << 40
"""More than the places of a segment."""


def point(segment: int, key: int) -> Point:
    """A place inside a segment; places just before its first event are negative."""
    return Point(segment * _SEGMENT + key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One micro step inside the run."""

    segment: int
    iteration: int
    micro_step: int
    last: bool
    """Whether gradients are reduced after it (the last micro step of an accumulation)."""


def _numbers() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class _Placed:
    """What a strategy placed; columns that numpy reads as they lie."""

    category: "array[int]" = field(default_factory=_numbers)
    fixed: "array[int]" = field(default_factory=_numbers)
    per_sample: dict[int, int] = field(default_factory=dict)
    """Of those few storages that grow with the batch."""
    cuda_stream: dict[int, int] = field(default_factory=dict)
    """Of those that do not come from the default stream's pool."""
    label: list[str] = field(default_factory=list)
    module: list[str] = field(default_factory=list)
    at: "array[int]" = field(default_factory=_numbers)
    what: "array[int]" = field(default_factory=_numbers)
    """Of each event: twice the storage's number, one more where it is allocated. Traced storages count down from -1."""
    waits: dict[int, Waits] = field(default_factory=dict)
    """Of events that free a block on which a stream was recorded."""
    waiting: "Waiting | None" = None
    """The same of all of them at once."""

    def store(self, category: Category, sizes: Sequence[int], labels: Iterable[str], modules: Iterable[str]) -> range:
        """Storages of one category; their numbers."""
        first = len(self.fixed)
        self.fixed.extend(sizes)
        self.category.extend([CATEGORY_INDEX[category]] * len(sizes))
        self.label.extend(labels)
        self.module.extend(modules)
        self.what.extend(range(2 * first + 1, 2 * len(self.fixed), 2))
        return range(first, len(self.fixed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Frees that wait, and for each schedule in which the host runs ahead their moments."""

    events: IntArray
    """By the number of the strategy's own event."""
    freed: IntArray
    """Which of the frees that the streams have queued each is."""
    until: IntArray
    """[schedules, frees, 2]: moments; of a block that is not back before the allocator itself waits for the device the
    number is -1."""
    moments: IntArray
    """[moments, 2]: those of the streams."""

    @staticmethod
    def of(waits: "Mapping[int, Waits]", streams: DeviceStreams | None) -> "Waiting":
        """One by one, those of the streams' log found again."""
        until = [[one.until.get(schedule, _NEVER) for one in waits.values()] for schedule in RUNS_AHEAD]
        log = () if streams is None else streams.log
        order = {id(freed): number for number, freed in enumerate(entry[3] for entry in log if entry[0] is Did.FREED)}
        return Waiting(
            events=np.asarray(list(waits), dtype=np.int64),
            freed=np.asarray([order.get(id(one), -1) for one in waits.values()], dtype=np.int64),
            until=np.asarray(until, dtype=np.int64).reshape(len(RUNS_AHEAD), -1, 2),
            moments=np.asarray([] if streams is None else streams.moments, dtype=np.int64).reshape(-1, 2),
        )


_NEVER: Moment = (0, -1)


class Placer:
    """What a strategy places in segments, wherever its passes lie."""

    def __init__(self) -> None:
        self._placed = _Placed()
        self._last_key: dict[int, int] = {}
        self.steps: list[int] = []
        """Segments of the optimizer steps, by iteration."""

    def at_load(self) -> Point:
        """While the model is built and wrapped."""
        return self._next(0)

    def at_step(self, iteration: int) -> Point:
        """The next moment of an iteration's optimizer step."""
        return self._next(self.steps[iteration])

    def _next(self, segment: int) -> Point:
        last = self._last_key[segment] = self._last_key.get(segment, 0) + 1
        return Point(segment * _SEGMENT + last)

    def alloc(
        self, at: Point, nbytes: int, category: Category, label: str, module: str = "", *, cuda_stream: int = 0
    ) -> Handle:
        """Places a storage of `nbytes`; `cuda_stream` names the stream whose pool it comes from, 0 the default one."""
        placed = self._placed
        tensor = len(placed.fixed)
        placed.category.append(CATEGORY_INDEX[category])
        placed.fixed.append(nbytes)
        if cuda_stream:
            placed.cuda_stream[tensor] = cuda_stream
        placed.label.append(label)
        placed.module.append(module)
        placed.at.append(at)
        placed.what.append(2 * tensor + 1)
        return Handle(tensor)

    def alloc_each(
        self, at: Point, sizes: Iterable[int], category: Category, label: str, module: str = ""
    ) -> tuple[Handle, ...]:
        """Places several storages at once."""
        sizes = list(sizes)
        made = self._placed.store(category, sizes, [label] * len(sizes), [module] * len(sizes))
        self._placed.at.extend([at] * len(made))
        return tuple(map(Handle, made))

    def free_each(self, at: Point, handles: Iterable[Handle]) -> None:
        """Gives several storages back."""
        placed = self._placed
        before = len(placed.what)
        placed.what.extend([2 * handle for handle in handles])
        placed.at.extend([at] * (len(placed.what) - before))

    def alloc_in_step(self, iteration: int, rows: Iterable[tuple[str, str, int]], category: Category) -> list[Handle]:
        """Places storages in an iteration's optimizer step one after the other, each in a moment of its own: label,
        module and bytes of each."""
        return self.alloc_in(self.steps[iteration], rows, category)

    def alloc_in(self, segment: int, rows: Iterable[tuple[str, str, int]], category: Category) -> list[Handle]:
        """The same in any segment that is no pass; the first one is that of loading."""
        labels, modules, sizes = zip(*rows, strict=True) if (rows := list(rows)) else ((), (), ())
        made = self._placed.store(category, sizes, labels, modules)
        self._placed.at.extend(self._next_moments(segment, len(made)))
        return list(map(Handle, made))

    def free_in_step(self, iteration: int, handles: Sequence[Handle]) -> None:
        """Gives storages back in an iteration's optimizer step, each in a moment of its own."""
        self._placed.at.extend(self._next_moments(self.steps[iteration], len(handles)))
        self._placed.what.extend([2 * handle for handle in handles])

    def _next_moments(self, segment: int, count: int) -> range:
        last = self._last_key.get(segment, 0)
        self._last_key[segment] = last + count
        start = segment * _SEGMENT + last + 1
        return range(start, start + count)

    def free(self, at: Point, handle: Handle, waits: Waits | None = None) -> None:
        """The storage goes back to the allocator; `waits`: which cannot hand it out before the device is done."""
        placed = self._placed
        if waits is not None:
            placed.waits[len(placed.at)] = waits
        placed.at.append(at)
        placed.what.append(2 * handle)

    def transient(self, at: Point, nbytes: int, category: Category, label: str, *, cuda_stream: int = 0) -> None:
        """A storage that lives for one call; `cuda_stream` as in `alloc`."""
        self.free(at, self.alloc(at, nbytes, category, label, cuda_stream=cuda_stream))

    def steps_begin(self) -> tuple[tuple[int, int], ...]:
        """Where the next moment of each optimizer step lies: its segment, and the moments that it has so far."""
        return tuple((segment, self._last_key.get(segment, 0)) for segment in self.steps)

    @classmethod
    def beginning(cls, steps: Iterable[tuple[int, int]]) -> "Placer":
        """Nothing placed yet, behind what `steps_begin` says."""
        made = Placer()
        for segment, last in steps:
            made.steps.append(segment)
            made._last_key[segment] = last
        return made

    def splice(self, other: "Placer") -> None:
        """Places all that `other` holds, which began where this one stands, and whose frees wait for nothing."""
        placed, more = self._placed, other._placed
        first = len(placed.fixed)
        placed.category.extend(more.category)
        placed.fixed.extend(more.fixed)
        placed.label.extend(more.label)
        placed.module.extend(more.module)
        placed.at.extend(more.at)
        placed.what.frombytes((_column(more.what) + 2 * first).tobytes())
        placed.cuda_stream |= {first + tensor: stream for tensor, stream in more.cuda_stream.items()}
        self._last_key |= other._last_key


class StreamBuilder(Placer):
    """Lays out a run of two iterations: load, then for each iteration its micro steps and the optimizer step.

    Of an accumulation's micro steps the first and one later one are laid out: the rest repeat the later one.
    """

    def __init__(self, trace: StepTrace, accumulation_steps: int) -> None:
        super().__init__()
        self.trace = trace
        self.passes: list[Pass] = []
        self._lay_out(accumulation_steps)
        self._numbers = {in_pass.segment: number for number, in_pass in enumerate(self.passes)}
        self._marks = marks(trace)
        self._gradient_at = _gradient_positions(trace)
        self._gradient_tensor = _gradient_tensors(trace)
        self._num_tensors = trace.num_tensors
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

    # -- points ------------------------------------------------------------------------------------------

    def before(self, in_pass: Pass, event: int) -> Point:
        """Just before a traced event."""
        return Point(in_pass.segment * _SEGMENT + 2 * event)

    def after(self, in_pass: Pass, event: int) -> Point:
        """Just after a traced event."""
        return Point(in_pass.segment * _SEGMENT + 2 * event + 2)

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

    def _alloc(
        self, at: Point, fixed: int, per_sample: int, category: Category, label: str, module: str, cuda_stream: int = 0
    ) -> Handle:
        made = self.alloc(at, fixed, category, label, module, cuda_stream=cuda_stream)
        if per_sample:
            self._placed.per_sample[made] = per_sample
        return made

    @property
    def num_placed(self) -> int:
        """Events of the strategy that were placed so far."""
        return len(self._placed.at)

    def moment(self, at: Point) -> Moment:
        """A point, behind what was placed there so far."""
        return at, len(self._placed.at)

    def wait_each(self, waiting: Waiting) -> None:
        """What `waits` says in `free`, of all frees at once."""
        self._placed.waiting = waiting

    def free_gradient(self, at: Point, in_pass: Pass, parameter: int, waits: Waits | None = None) -> None:
        """The traced storage of a parameter's gradient goes away; `waits` as in `free`."""
        tensor = self._gradient_tensor.get(parameter)
        if tensor is not None:
            if waits is not None:
                self._placed.waits[len(self._placed.at)] = waits
            self.free_traced(at, in_pass, tensor)

    def free_gradients(self, at: Point, in_pass: Pass, parameters: Iterable[int]) -> None:
        """Those of several parameters, at once."""
        placed, first = self._placed, self._number(in_pass) * self._num_tensors + 1
        known = [tensor for one in parameters if (tensor := self._gradient_tensor.get(one)) is not None]
        placed.at.extend([at] * len(known))
        placed.what.extend([-2 * (first + tensor) for tensor in known])

    def free_traced(self, at: Point, in_pass: Pass, tensor: int) -> None:
        """A traced storage of a pass goes away, which the trace itself leaves alive."""
        placed = self._placed
        placed.at.append(at)
        placed.what.append(-2 * (self._number(in_pass) * self._num_tensors + tensor + 1))

    def _number(self, in_pass: Pass) -> int:
        return self._numbers[in_pass.segment]

    def _hand_over_inputs(self) -> None:
        """Each batch lives until the loop's variable takes the next one."""
        before: list[Handle] = []
        for in_pass in self.passes:
            start = point(in_pass.segment, -1)
            batch = [
                self._alloc(start, fixed, per_sample, Category.INPUTS, name, "")
                for name, per_sample, fixed in self.trace.inputs
            ]
            for handle in before:
                self.free(start, handle)
            before = batch

    # -- result --------------------------------------------------------------------------------------------

    def build(self, streams: DeviceStreams | None = None) -> "RankStream":
        """The finished stream; `streams`: what was queued beside it on the device's streams."""
        segments = self._pass_segments()
        placed = self._placed
        return _assemble(self.trace, self._traced_events(), segments, len(self.passes), self.steps, placed, streams)

    def _pass_segments(self) -> list[int]:
        """Segments in which passes run."""
        return [in_pass.segment for in_pass in self.passes]

    def _traced_events(self) -> "TracedEvents":
        """What the traced step itself allocates and frees, pass by pass."""
        base_at, base_sign, base_subject = allocations(self.trace)
        carried = carried_storages(self.trace)
        bound_key = 2 * self._marks[Mark.OUTPUTS_BOUND]
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

    at: list[IntArray] = field(default_factory=list)
    signs: list[IntArray] = field(default_factory=list)
    tensors: list[IntArray] = field(default_factory=list)

    def add(self, segment: int, keys: IntArray, signs: IntArray, tensors: IntArray) -> None:
        """Events of one segment."""
        self.at.append(segment * _SEGMENT + keys)
        self.signs.append(signs)
        self.tensors.append(tensors)


@of_trace
def allocations(trace: StepTrace) -> tuple[IntArray, IntArray, IntArray]:
    """Position, sign and tensor of every allocation and free of a trace."""
    at = np.flatnonzero((trace.kind == Kind.ALLOC) | (trace.kind == Kind.FREE))
    return at, np.where(trace.kind[at] == Kind.ALLOC, 1, -1), trace.subject[at]


@of_trace
def marks(trace: StepTrace) -> dict[Mark, int]:
    """Where each point of the loop lies."""
    return {mark: trace.mark_position(mark) for mark in Mark if trace.has_mark(mark)}


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
    history: History | None = field(default=None, compare=False, repr=False)
    """What was queued on the device's streams, where blocks wait for them."""
    evaluation_segment: int = 0
    """Segment in which batches are evaluated, after all training; 0 where none are."""
    between: tuple[tuple[int, Phase], ...] = ()
    """Segments behind all training in which the job does something else, and what."""
    names: tuple[tuple[int, str], ...] = ()
    """What those segments are called, where somebody named them."""
    phases: tuple[Phase, ...] = ()
    """Of a generation: the phase of each segment. Empty for training, whose events tell it."""
    _peaks: Peaks = field(init=False, default_factory=Peaks, compare=False, repr=False)

    def sizes(self, micro_batch: int) -> IntArray:
        """Allocator bytes charged for every storage."""
        return (self.requested(micro_batch) + (BLOCK - 1)) & -BLOCK

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

    def peak(self, micro_batch: int) -> int:
        """Most bytes allocated after any event; 0 without events."""
        return self._peaks.of(micro_batch, self.event_sign, self.event_tensor, self.fixed, self.per_sample)


def _assemble(
    trace: StepTrace,
    base: TracedEvents,
    pass_segments: list[int],
    num_passes: int,
    steps: list[int],
    placed: _Placed,
    streams: DeviceStreams | None,
) -> RankStream:
    own = len(placed.fixed)
    traced = trace.num_tensors * num_passes
    what = _column(placed.what)
    own_tensor = what >> 1
    at = np.concatenate([*base.at, _column(placed.at)])
    order = np.argsort(at, kind="stable")
    signs = np.concatenate([*base.signs, 2 * (what & 1) - 1])
    tensors = np.concatenate([*base.tensors, np.where(own_tensor >= 0, own_tensor + traced, -1 - own_tensor)])
    # Places just before a segment's first event are below its multiple.
    sorted_at = at[order]
    segment = (sorted_at + _SEGMENT // 2) // _SEGMENT
    backward_key = 2 * marks(trace)[Mark.BACKWARD]
    in_backward = among(segment, pass_segments) & (sorted_at - segment * _SEGMENT >= backward_key)
    waiting = placed.waiting or (Waiting.of(placed.waits, streams) if placed.waits else None)
    lead = None if waiting is None else _Order(at, order, len(placed.at))
    return RankStream(
        trace=trace,
        num_passes=num_passes,
        event_sign=signs[order],
        event_tensor=tensors[order],
        event_segment=segment,
        event_in_backward=in_backward,
        event_return=None if waiting is None or lead is None else _returns(waiting, lead),
        history=None if waiting is None or lead is None or streams is None else _history(waiting, lead, streams),
        step_segments=tuple(steps),
        fixed=np.concatenate([np.tile(trace.bytes_fixed, num_passes), _column(placed.fixed)]),
        per_sample=np.concatenate([np.tile(trace.bytes_per_sample, num_passes), _sparse(placed.per_sample, own)]),
        cuda_stream=np.concatenate([np.zeros(traced, dtype=np.int64), _sparse(placed.cuda_stream, own)]),
        category=np.concatenate([np.tile(trace.category, num_passes), _column(placed.category)]),
        labels=placed.label,
        label_modules=placed.module,
    )


class _Order:
    """Where events and moments stand once all are in time order."""

    def __init__(self, at: IntArray, order: IntArray, placed: int) -> None:
        """`at` [events] before they are ordered, those that were placed last; `order` as of argsort."""
        self.count, self._own = len(order), len(order) - placed
        self._place = np.empty(self.count, dtype=np.int64)
        self._place[order] = np.arange(self.count)
        self._points, starts = np.unique(at[order], return_index=True)
        # Of events at one point the order is that of their numbers: both in one number, which grows with the place.
        number = np.repeat(np.arange(len(self._points)), np.diff(starts, append=self.count))
        self._number = number * (self.count + 1) + order

    def of_placed(self, numbers: IntArray) -> IntArray:
        """Places of events by the numbers under which they were placed."""
        found: IntArray = self._place[self._own + numbers]
        return found

    def behind(self, known: IntArray) -> IntArray:
        """First event behind each moment [moments, 2]."""
        group = np.searchsorted(self._points, known[:, 0])
        # A moment stands before the event that was placed next; one where nothing is, before the next point.
        there = np.append(self._points, -1)[group] == known[:, 0]
        first = group * (self.count + 1) + np.where(there, self._own + known[:, 1], 0)
        return np.searchsorted(self._number, first)


def _returns(waiting: Waiting, order: _Order) -> IntArray:
    """Position of the first event behind each return, for every event in its place; by itself where none waits."""
    returns = np.tile(np.arange(order.count), (len(RUNS_AHEAD), 1))
    frees = order.of_placed(waiting.events)
    for schedule in RUNS_AHEAD:
        until = waiting.until[schedule]
        never = until[:, 1] < 0
        returns[schedule, frees[never]] = order.count
        returns[schedule, frees[~never]] = order.behind(until[~never])
    return returns


def _history(waiting: Waiting, order: _Order, streams: DeviceStreams) -> History:
    freed = np.full(sum(entry[0] is Did.FREED for entry in streams.log), -1)
    known = waiting.freed >= 0
    freed[waiting.freed[known]] = order.of_placed(waiting.events[known])
    return History(log=streams.log, freed=freed, moments=np.append(order.behind(waiting.moments), order.count))


def among(segments: IntArray, wanted: Sequence[int]) -> NDArray[np.bool_]:
    """Which segments are among those that are wanted: small numbers, looked up."""
    found = np.zeros(max(int(segments.max(initial=0)), *wanted, 0) + 1, dtype=np.bool_)
    found[list(wanted)] = True
    return found[segments]


def _column(values: "array[int]") -> IntArray:
    return np.frombuffer(values, dtype=np.int64) if values else np.zeros(0, dtype=np.int64)


def _sparse(values: Mapping[int, int], length: int) -> IntArray:
    column = np.zeros(length, dtype=np.int64)
    column[list(values)] = list(values.values())
    return column


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
    "Placer",
    "Point",
    "RankStream",
    "StreamBuilder",
    "among",
    "carried_storages",
    "marks",
    "point",
]
