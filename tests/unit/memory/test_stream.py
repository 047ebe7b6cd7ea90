"""A rank's stream: where placed events stand among the traced ones, what a loop carries over, and sizes of blocks."""

from dataclasses import replace

import numpy as np

from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.memory.schedule import DeviceStreams, Schedule
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.traced import carried_storages
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.trace.events import Category, Kind, Mark, StepTrace
from tests.support.live_bytes import live
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import ACTIVATION, tiny_trace

TRACE = tiny_trace([(64, 4)] * 2, element_bytes=4)


def kept_outputs(held: bool = False) -> StepTrace:
    """The last layer's output is still named when backward is over, as a loop's `loss` is."""
    last = int(np.flatnonzero((TRACE.kind == Kind.FREE) & (TRACE.subject == 1))[0])
    rest = np.delete(np.arange(TRACE.num_events), last)
    return replace(TRACE, kind=TRACE.kind[rest], subject=TRACE.subject[rest], held=[1] if held else [])


def test_what_is_placed_before_and_after_an_event_stands_there() -> None:
    builder = StreamBuilder(TRACE, 1)
    first = builder.passes[0]
    made = int(np.flatnonzero((TRACE.kind == Kind.ALLOC) & (TRACE.subject == 0))[0])
    builder.alloc(builder.after(first, made), 7, Category.TEMPORARY, "behind")
    builder.alloc(builder.before(first, made), 5, Category.TEMPORARY, "ahead")
    stream = builder.build()
    sizes = stream.requested(1)[stream.event_tensor].tolist()
    assert sizes[:4] == [64, 5, ACTIVATION, 7]


def test_what_is_placed_where_backward_begins_belongs_to_it() -> None:
    builder = StreamBuilder(TRACE, 1)
    first = builder.passes[0]
    at = TRACE.mark_position(Mark.BACKWARD)
    points = (builder.before(first, at - 1), builder.at_mark(first, Mark.BACKWARD), builder.after(first, at))
    for number, where in enumerate(points):
        builder.alloc(where, 100 + number, Category.TEMPORARY, "placed")
    stream = builder.build()
    sizes = stream.requested(1)[stream.event_tensor]
    assert [bool(stream.event_in_backward[sizes == 100 + number].item()) for number in range(3)] == [False, True, True]


def test_what_a_loop_still_names_goes_when_it_is_bound_anew() -> None:
    trace = kept_outputs()
    assert carried_storages(trace).tolist() == [1]
    stream = StreamBuilder(trace, 1).build()
    outputs = [trace.num_tensors * number + 1 for number in range(2)]
    events = [
        (int(segment), int(sign))
        for segment, sign, tensor in zip(stream.event_segment, stream.event_sign, stream.event_tensor, strict=True)
        if tensor in outputs
    ]
    assert events == [(1, 1), (3, 1), (3, -1)], "the first iteration's beside the second's, until outputs are bound"
    bound = stream.event_in_backward[np.flatnonzero((stream.event_tensor == 1) & (stream.event_sign < 0))]
    assert not bound.any(), "before backward"
    assert trace.mark_position(Mark.OUTPUTS_BOUND) < trace.mark_position(Mark.BACKWARD)


def test_what_is_held_for_good_is_left_behind_by_every_step() -> None:
    trace = kept_outputs(held=True)
    assert carried_storages(trace).tolist() == []
    ends = live(StreamBuilder(trace, 1).build())
    leaking = live(StreamBuilder(kept_outputs(), 1).build())
    assert int(ends[-1]) - int(leaking[-1]) == ACTIVATION


def test_gradients_are_no_part_of_what_a_loop_carries() -> None:
    assert carried_storages(TRACE).tolist() == []


def test_blocks_are_multiples_of_512_bytes() -> None:
    builder = StreamBuilder(TRACE, 1)
    sizes = (0, 1, 511, 512, 513, 1024, 1025)
    for size in sizes:
        builder.alloc(builder.at_load(), size, Category.TEMPORARY, "x")
    stream = builder.build()
    own = stream.sizes(1)[TRACE.num_tensors * stream.num_passes :]
    placed = own[-len(sizes) :].tolist()
    assert placed == [0, 512, 512, 512, 1024, 1024, 1536]
    assert int(stream.live(1)[0]) == 0
    assert stream.requested(1)[-len(sizes) :].tolist() == list(sizes)


def test_micro_steps_beyond_two_are_like_the_second() -> None:
    passes = [[(one.iteration, one.micro_step, one.last) for one in StreamBuilder(TRACE, n).passes] for n in (1, 2, 5)]
    assert passes[0] == [(0, 0, True), (1, 0, True)]
    assert passes[1] == passes[2] == [(0, 0, False), (0, 1, True), (1, 0, False), (1, 1, True)]


def test_a_block_that_nothing_waits_for_never_comes_back_by_itself() -> None:
    builder, streams = StreamBuilder(TRACE, 1), DeviceStreams()
    handle = builder.alloc(builder.at_load(), 512, Category.TEMPORARY, "x")
    builder.free(builder.at_load(), handle, streams.free(0))
    stream = builder.build(streams)
    freed = int(np.flatnonzero(stream.event_sign < 0)[0])
    returns = stream.returns(Schedule.AHEAD)
    assert returns is not None
    assert int(returns[freed]) == len(stream.event_sign)
    assert stream.returns(Schedule.WAITS) is None


def test_what_is_at_rest_is_what_an_iteration_leaves() -> None:
    stream = Single().rank(small_context(TRACE, world_size=1)).stream
    profile = measure(stream, 1)
    assert profile.at_rest_bytes == int(stream.live(1)[-1])
    assert profile.at_rest_bytes > int(stream.live(1)[0])


def test_columns_are_narrow_and_bytes_are_not() -> None:
    stream = Single().rank(small_context(TRACE, world_size=1)).stream
    columns = (stream.event_sign, stream.event_tensor, stream.event_segment, stream.category, stream.cuda_stream)
    assert [column.itemsize for column in columns] == [1, 4, 2, 1, 1]
    assert stream.requested(2**40).dtype == np.int64
    assert stream.live(2**40).dtype == np.int64
