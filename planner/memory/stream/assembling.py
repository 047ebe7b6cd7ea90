"""Traced events and placed ones in one order of time."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.memory.lead.history import History
from gpu_plan.planner.memory.schedule import RUNS_AHEAD, DeviceStreams
from gpu_plan.planner.memory.stream.moments import SEGMENT
from gpu_plan.planner.memory.stream.orders import Known, Ordered, Returned, orders
from gpu_plan.planner.memory.stream.placing import Placed, Waiting, column
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.memory.stream.traced import TracedEvents, marks
from gpu_plan.planner.trace.events import IntArray, Mark, StepTrace
from gpu_plan.planner.trace.remembered import of_trace

_FEW = 2**15 - 1
"""Segments whose numbers two bytes hold: a run has more only where it has thousands of micro batches laid out."""


def assembled(
    trace: StepTrace,
    base: Callable[[], TracedEvents],
    pass_segments: list[int],
    num_passes: int,
    steps: list[int],
    placed: Placed,
    streams: DeviceStreams | None,
    *,
    like_others: bool = False,
) -> RankStream:
    """The stream of what was placed among the traced events that `base` gives; `like_others` says that those are the
    same for every rank of the trace with as many passes."""
    own = len(placed.fixed)
    traced = trace.num_tensors * num_passes
    waiting = placed.waiting
    if placed.waits:
        assert streams is not None, "whatever waits, waits for a stream"
        waiting = waiting or Waiting.of(placed.waits, streams)
    frees = 0 if streams is None else streams.log.frees
    key = _key(placed, waiting, frees, num_passes, pass_segments) if like_others else None
    known = orders(trace).get(key) if like_others else None
    if known is None:
        known = _known(trace, base(), pass_segments, traced, placed, waiting, frees)
        if like_others:
            orders(trace).put(key, known)
    ordered, returned = known
    history = None
    if returned is not None and streams is not None:
        history = History(log=streams.log, freed=returned.freed, moments=returned.moments)
    return RankStream(
        trace=trace,
        num_passes=num_passes,
        event_sign=ordered.sign,
        event_tensor=ordered.tensor,
        event_segment=ordered.segment,
        event_in_backward=ordered.in_backward,
        event_return=None if returned is None else returned.returns,
        history=history,
        step_segments=tuple(steps),
        fixed=np.concatenate([np.tile(trace.bytes_fixed, num_passes), column(placed.fixed)]),
        per_sample=_per_sample(trace, num_passes, placed, own),
        cuda_stream=_narrow(
            np.concatenate([np.zeros(traced, dtype=np.int64), _sparse(placed.cuda_stream, own)]), np.int8
        ),
        category=_narrow(np.concatenate([np.tile(trace.category, num_passes), column(placed.category)]), np.int8),
        labels=placed.label,
        label_modules=placed.module,
    )


def _key(
    placed: Placed, waiting: Waiting | None, frees: int, num_passes: int, pass_segments: list[int]
) -> tuple[object, ...]:
    """What decides the order of events, all but certainly: a digest stands for where each was placed, and for what it
    waits."""
    waits = () if waiting is None else (waiting.events, waiting.freed, waiting.until, waiting.moments)
    digest = sha256()
    for numbers in (column(placed.at), column(placed.what), *waits):
        digest.update(str(numbers.shape).encode())
        digest.update(np.ascontiguousarray(numbers).data)
    return num_passes, tuple(pass_segments), frees, digest.digest()


def _known(
    trace: StepTrace,
    base: TracedEvents,
    pass_segments: list[int],
    traced: int,
    placed: Placed,
    waiting: Waiting | None,
    frees: int,
) -> Known:
    """Events in order, and when what waits comes back; `frees`: as many as the streams' log has."""
    ordered, at, order = _ordered(trace, base, pass_segments, traced, placed)
    if waiting is None:
        return ordered, None
    lead = _Order(at, order, len(placed.at))
    moments = np.append(lead.behind(waiting.moments), lead.count)  # NEVER is the last one
    returns = _narrow(_returns(waiting, lead, moments), np.int32)
    return ordered, Returned(returns=returns, freed=_freed(waiting, lead, frees), moments=moments)


def _ordered(
    trace: StepTrace, base: TracedEvents, pass_segments: list[int], traced: int, placed: Placed
) -> tuple[Ordered, IntArray, IntArray]:
    """Events in order, their points before they were put in order, and that order."""
    what = column(placed.what)
    own_tensor = what >> 1
    at = np.concatenate([*base.at, column(placed.at)])
    order = np.argsort(at, kind="stable")
    signs = np.concatenate([*base.signs, 2 * (what & 1) - 1])
    tensors = np.concatenate([*base.tensors, np.where(own_tensor >= 0, own_tensor + traced, -1 - own_tensor)])
    # Places just before a segment's first event are below its multiple.
    sorted_at = at[order]
    segment = (sorted_at + SEGMENT // 2) // SEGMENT
    backward_key = 2 * marks(trace)[Mark.BACKWARD]
    in_backward = among(segment, pass_segments) & (sorted_at - segment * SEGMENT >= backward_key)
    found = Ordered(
        sign=_narrow(signs[order], np.int8),
        tensor=_narrow(tensors[order], np.int32),
        segment=_narrow(segment, np.int16 if len(segment) == 0 or segment[-1] <= _FEW else np.int32),
        in_backward=in_backward,
    )
    return found, at, order


@of_trace
def _growing(_: StepTrace) -> WeakValueDictionary[object, IntArray]:
    """By passes and what a strategy placed that grows with the batch, which is little, such columns of a trace."""
    return WeakValueDictionary()


def _per_sample(trace: StepTrace, num_passes: int, placed: Placed, own: int) -> IntArray:
    """What grows with the batch, storage by storage; ranks that differ in sizes alone share it."""
    known, key = _growing(trace), (num_passes, own, tuple(placed.per_sample.items()))
    found = known.get(key)
    if found is None:
        found = np.concatenate([np.tile(trace.bytes_per_sample, num_passes), _sparse(placed.per_sample, own)])
        known[key] = found
    return found


def _narrow(values: IntArray, to: type[np.signedinteger[Any]]) -> IntArray:
    """The same numbers in fewer bytes: a search keeps the streams of hundreds of ranks. Bytes of storages are never
    narrowed, and numpy widens what is multiplied with them."""
    return cast("IntArray", values.astype(to))


class _Order:
    """Where events and moments stand once all are in time order."""

    def __init__(self, at: IntArray, order: IntArray, placed: int) -> None:
        """`at` [events] before they are ordered, those that were placed last; `order` as of argsort."""
        self.count, self._own = len(order), len(order) - placed
        self._place = np.empty(self.count, dtype=np.int64)
        self._place[order] = np.arange(self.count)
        sorted_at = at[order]
        starts = np.flatnonzero(np.diff(sorted_at, prepend=sorted_at[:1] - 1))
        self._points = sorted_at[starts]
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


def _returns(waiting: Waiting, order: _Order, moments: IntArray) -> IntArray:
    """Position of the first event behind each return, for every event in its place; by itself where none waits.

    `moments`: the first event behind each, and the end of all."""
    returns = np.tile(np.arange(order.count), (len(RUNS_AHEAD), 1))
    returns[:, order.of_placed(waiting.events)] = moments[waiting.until]
    return returns


def _freed(waiting: Waiting, order: _Order, frees: int) -> IntArray:
    """Place of the event of each free of the log; -1 where none was placed."""
    freed = np.full(frees, -1)
    known = waiting.freed >= 0
    freed[waiting.freed[known]] = order.of_placed(waiting.events[known])
    return freed


def among(segments: IntArray, wanted: Sequence[int]) -> NDArray[np.bool_]:
    """Which segments are among those that are wanted: small numbers, looked up."""
    found = np.zeros(max(int(segments.max(initial=0)), *wanted, 0) + 1, dtype=np.bool_)
    found[list(wanted)] = True
    return found[segments]


def _sparse(values: Mapping[int, int], length: int) -> IntArray:
    column = np.zeros(length, dtype=np.int64)
    column[list(values)] = list(values.values())
    return column
