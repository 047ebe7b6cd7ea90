"""Orders of events that several ranks of a trace share, and for how long they are kept."""

import gc

import numpy as np
import pytest

from gpu_plan.planner.memory.schedule import DEFAULT_STREAM, DeviceStreams
from gpu_plan.planner.memory.stream import assembling
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.orders import Orders, orders
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.trace.events import Category, StepTrace
from tests.support.tiny_trace import tiny_trace

ARRAYS = ("event_sign", "event_tensor", "event_segment", "event_in_backward", "event_return")
SIDE = 1


def stream(trace: StepTrace, size: int, *, waits: bool = True, longer: bool = False) -> RankStream:
    """A storage of each pass comes and goes, and waits for another stream."""
    builder, streams = StreamBuilder(trace, 2), DeviceStreams()
    for in_pass in builder.passes:
        start, end = builder.before(in_pass, 2), builder.after(in_pass, 6)
        made = builder.alloc(start, size, Category.COMMUNICATION, "gathered")
        streams.wait(SIDE, DEFAULT_STREAM)
        work = streams.record(SIDE)
        if waits:
            builder.free(end, made, streams.free(SIDE))
        else:
            builder.free(end, made)
        streams.host_waits(work, builder.moment(builder.after(in_pass, 21 if longer else 7)))
    return builder.build(streams)


def same(one: RankStream, other: RankStream) -> bool:
    return all(getattr(one, name) is getattr(other, name) for name in ARRAYS)


def test_ranks_that_differ_in_sizes_share_their_order_and_what_waits() -> None:
    trace = tiny_trace(((8, 8), (8, 8)))
    one, other = stream(trace, 512), stream(trace, 4096)
    assert same(one, other)
    assert one.history is not None
    assert other.history is not None
    assert one.history.moments is other.history.moments
    assert one.history.freed is other.history.freed
    assert one.history.log is not other.history.log
    assert not np.array_equal(one.fixed, other.fixed)


def test_what_waits_longer_or_not_at_all_has_an_order_of_its_own() -> None:
    trace = tiny_trace(((8, 8), (8, 8)))
    one, longer, at_once = stream(trace, 512), stream(trace, 512, longer=True), stream(trace, 512, waits=False)
    assert one.event_return is not None
    assert longer.event_return is not None
    assert not np.array_equal(one.event_return, longer.event_return)
    assert at_once.event_return is None
    assert at_once.history is None


def test_equal_to_what_is_put_in_order_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tiny_trace(((8, 8), (8, 8)))
    first = stream(trace, 512)
    shared = stream(trace, 4096)
    monkeypatch.setattr(assembling, "orders", lambda _: Orders())
    alone = stream(trace, 4096)
    assert same(first, shared)
    assert not same(shared, alone)
    assert all(np.array_equal(getattr(shared, name), getattr(alone, name)) for name in ARRAYS)


def test_what_waits_is_kept_no_longer_than_a_stream_has_it() -> None:
    trace = tiny_trace(((8, 8), (8, 8)))
    one = stream(trace, 512)
    assert len(orders(trace)._held) == 1
    del one
    gc.collect()
    assert all(array() is None for held in orders(trace)._held.values() for array in (*held[0], *held[1]))
    again = stream(trace, 512, longer=True)
    assert len(orders(trace)._held) == 1, "what is gone is forgotten"
    assert again.event_return is not None
