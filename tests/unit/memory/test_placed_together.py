"""What a strategy places: in the order of its points, one by one or many at once, and repeated for a rank alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import islice
from unittest.mock import patch
from weakref import WeakValueDictionary

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.memory.lead.history import History
from gpu_plan.planner.memory.schedule import NEVER, RUNS_AHEAD, DeviceStreams, Schedule
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Point, point
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.kinds.ddp import DistributedDataParallel
from gpu_plan.planner.strategy.kinds.zero3 import Zero3
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.strategy.zero.stage3.gather import Coordinator
from gpu_plan.planner.strategy.zero.stage3.hooks import structure
from gpu_plan.planner.strategy.zero.stage3.hooks.script import FETCH, REDUCE, TAKE, Script
from gpu_plan.planner.strategy.zero.stage3.hooks.structure import carried_out, scripts
from gpu_plan.planner.strategy.zero.stage3.hooks.walk import _Walk
from gpu_plan.planner.strategy.zero.stage3.rank import Stage3
from gpu_plan.planner.strategy.zero.stage3.swap import SwapError
from gpu_plan.planner.trace.events import Category, Kind, StepTrace
from gpu_plan.planner.workload.training import Stack
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

SHAPES = [(64, 4), (8,), (32, 16), (4,)]
TRACE = tiny_trace(SHAPES, element_bytes=4)
LABEL = "x"


def told(history: History | None) -> object:
    """What was queued, and where it stands; None where nothing waits."""
    if history is None:
        return None
    return history.log, history.freed.tolist(), history.moments.tolist()


def same(one: RankStream, other: RankStream) -> None:
    for field in fields(RankStream):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name == "history":
            assert told(mine) == told(theirs)
        elif field.name != "trace":
            assert np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs, field.name


@given(st.lists(st.lists(st.integers(0, 5000), max_size=4), max_size=5))
def test_many_at_once_are_as_many_one_by_one(groups: list[list[int]]) -> None:
    one, many = StreamBuilder(TRACE, 1), StreamBuilder(TRACE, 1)
    for number, sizes in enumerate(groups):
        iteration = number % 2
        made = [one.alloc(one.at_step(iteration), size, Category.TEMPORARY, LABEL, f"m{size}") for size in sizes]
        rows = [(LABEL, f"m{size}", size) for size in sizes]
        assert many.alloc_in_step(iteration, rows, Category.TEMPORARY) == made
        for handle in made:
            one.free(one.at_step(iteration), handle)
        many.free_in_step(iteration, made)
        at = one.after(one.passes[0], 3)
        held = [one.alloc(at, size, Category.GRADIENTS, LABEL) for size in sizes]
        assert list(many.alloc_each(at, sizes, Category.GRADIENTS, LABEL)) == held
        for handle in held:
            one.free(at, handle)
        many.free_each(at, held)
    same(one.build(), many.build())


moments = st.tuples(st.integers(0, 4), st.integers(-2, 30))


@settings(max_examples=60)
@given(st.lists(moments, max_size=25))
def test_events_stand_in_the_order_of_their_points_then_as_they_were_placed(
    chosen: list[tuple[int, int]],
) -> None:
    builder = StreamBuilder(TRACE, 1)
    placed: list[tuple[Point, int]] = []
    for size, (segment, key) in enumerate(chosen, start=1):
        at = point(segment, key)
        placed.append((at, size))
        builder.alloc(at, size, Category.TEMPORARY, LABEL)
    stream = builder.build()
    own = TRACE.num_tensors * stream.num_passes
    inputs = len(stream.fixed) - own - len(chosen)
    found = [int(tensor) - own - inputs + 1 for tensor in stream.event_tensor if tensor >= own + inputs]
    assert found == [size for _, size in sorted(placed, key=lambda one: one[0])]
    assert (np.diff(stream.event_segment) >= 0).all()


@settings(max_examples=60)
@given(st.lists(st.tuples(moments, moments), min_size=1, max_size=12))
def test_a_block_serves_again_before_the_first_event_behind_its_moment(
    chosen: list[tuple[tuple[int, int], tuple[int, int]]],
) -> None:
    """Behind a moment stands what has a later point, and at the same point what was placed after it was taken."""
    builder, streams = StreamBuilder(TRACE, 1), DeviceStreams()
    waiting: list[tuple[int, Point, int]] = []
    for freed, back in chosen:
        handle = builder.alloc(point(*freed), 512, Category.TEMPORARY, LABEL)
        waiting.append((int(handle), *builder.moment(point(*back))))
        builder.free(point(*freed), handle, streams.free(0))
    streams.moments = [(at, number) for _, at, number in waiting]
    until = np.full((len(RUNS_AHEAD), len(chosen)), NEVER)
    until[Schedule.AHEAD] = np.arange(len(chosen))
    with patch.object(streams, "until", lambda: until):
        stream, placed = builder.build(streams), builder._placed
    traced = len(stream.event_sign) - len(placed.at)
    at = [*np.concatenate(builder._traced_events().at).tolist(), *placed.at]
    own = TRACE.num_tensors * stream.num_passes
    assert stream.event_return is not None
    for handle, back_at, number in waiting:
        before = sum(a < back_at or (a == back_at and place < traced + number) for place, a in enumerate(at))
        freed_at = np.flatnonzero((stream.event_tensor == own + handle) & (stream.event_sign < 0))
        assert stream.event_return[Schedule.AHEAD, freed_at].tolist() == [before]
        for other in set(RUNS_AHEAD) - {Schedule.AHEAD}:
            assert stream.event_return[other, freed_at].tolist() == [len(stream.event_sign)]


def context(**changes: object) -> RankContext:
    base = small_context(TRACE, world_size=4, settings=(("zero.param_persistence_threshold", "10"),))
    return replace(base, **changes)  # type: ignore[arg-type]


def alone(asked: RankContext) -> RankPlan:
    """Of a trace of its own, when no other is known."""
    with patch.object(structure, "_KNOWN", WeakValueDictionary()):
        return Zero3().rank(replace(asked, trace=replace(asked.trace)))


@contextmanager
def walks() -> Iterator[list[_Walk]]:
    """Those that are gone meanwhile, no trace being known before."""
    gone: list[_Walk] = []
    real = _Walk.script

    def counted(walk: _Walk) -> Script:
        gone.append(walk)
        return real(walk)

    with patch.object(_Walk, "script", counted), patch.object(structure, "_KNOWN", WeakValueDictionary()):
        yield gone


@pytest.mark.parametrize("world", [1, 4])
@pytest.mark.parametrize("stack", [Stack.PLAIN, Stack.TRAINER])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_rank_that_repeats_what_another_was_told_is_as_one_that_asks(world: int, stack: Stack, steps: int) -> None:
    """Of ranks of one trace the second and third find the coordinator's calls; each is held against a trace of its
    own."""
    shared = replace(TRACE)
    for offload in (Offload.NONE, Offload.OPTIMIZER, Offload.ALL):
        asked = context(world_size=world, stack=stack, accumulation_steps=steps, offload=offload)
        repeated = Zero3().rank(replace(asked, trace=shared))
        asks = alone(asked)
        same(repeated.stream, asks.stream)
        assert repeated.collectives == asks.collectives
        assert repeated.host_bytes == asks.host_bytes
    assert len(scripts(shared)) == (2 if world == 1 else 1), "one rank gathers only what lies on the host"


def test_one_walk_serves_ranks_that_offload_otherwise() -> None:
    """Every act of it is carried out by each of them; the hooks are walked along once."""
    trace = replace(TRACE)
    with walks() as gone:
        for offload in (Offload.NONE, Offload.OPTIMIZER, Offload.ALL):
            Zero3().rank(replace(context(offload=offload), trace=trace))
    (script,) = scripts(trace).values()
    assert len(gone) == 1
    assert sum(map(len, script.sections)) == len(script.columns) > 0
    assert not script.acts, "columns are kept alone"
    assert sum(carried(trace, 4).gathers.values()) > 0


def carried(trace: StepTrace, ranks: int) -> Script:
    """Its one script, as so many ranks carry it out."""
    ((key, _),) = scripts(trace).items()
    return carried_out(trace).get((key, ranks), lambda: pytest.fail("nobody carried it out"))


@pytest.mark.parametrize("offload", [Offload.NONE, Offload.ALL])
@pytest.mark.parametrize("overlaps", ["true", "false"])
@pytest.mark.parametrize("stack", [Stack.PLAIN, Stack.TRAINER])
def test_one_walk_serves_any_number_of_ranks(offload: Offload, overlaps: str, stack: Stack) -> None:
    """Each pads parameters otherwise, has parts and operators of its own, and copies what is not evenly divided."""
    settings = (("zero.param_persistence_threshold", "10"), ("zero.overlap_comm", overlaps))
    trace, worlds = replace(TRACE), (4, 2, 3, 7, 100)
    with walks() as gone:
        for world in worlds:
            asked = context(world_size=world, offload=offload, settings=settings, stack=stack)
            shared, asks = Zero3().rank(replace(asked, trace=trace)), alone(asked)
            same(shared.stream, asks.stream)
            assert shared.collectives == asks.collectives
    assert len(gone) == 1 + len(worlds), "one for all of them, and one of each alone"


def test_elements_of_a_script_are_those_of_padded_parameters() -> None:
    """Of 3 ranks, 256 elements are gathered as 258; a bucket of one gradient is copied for it is not evenly divided."""
    settings = (("zero.param_persistence_threshold", "0"), ("zero.reduce_bucket_size", "100"))
    trace = tiny_trace([(64, 4)], element_bytes=4)
    numbers = {}
    for world in (3, 4):
        Zero3().rank(replace(context(world_size=world, settings=settings), trace=trace))
        does, number = carried(trace, world).columns[:, 1], carried(trace, world).number
        numbers[world] = {kind: set(number[does == kind].tolist()) for kind in (TAKE, FETCH, REDUCE)}
        assert {one.elements for one in carried(trace, world).gathers} == {258 if world == 3 else 256}
    assert numbers == {3: {TAKE: {258}, FETCH: {258}, REDUCE: {258}}, 4: {TAKE: {256}, FETCH: {256}, REDUCE: {0}}}


def test_one_walk_serves_traces_whose_hooks_are_alike() -> None:
    """Other sizes of what is computed change no hook, nor do more kernels between them: those say when the host is held
    by what it launched. A module that runs elsewhere may."""
    larger = replace(TRACE, bytes_per_sample=TRACE.bytes_per_sample * 3)
    place = int(np.flatnonzero(TRACE.kind == Kind.EXIT)[0])
    longer = replace(
        TRACE,
        kind=np.insert(TRACE.kind, [place] * 1030, Kind.OPERATOR),
        subject=np.insert(TRACE.subject, [place] * 1030, 0),
    )
    once = int(np.flatnonzero(TRACE.kind == Kind.ENTER)[1])
    elsewhere = replace(TRACE, kind=np.delete(TRACE.kind, once), subject=np.delete(TRACE.subject, once))
    kept: list[StepTrace] = []
    with walks() as gone:
        for trace, known in ((replace(TRACE), 1), (larger, 1), (longer, 1), (elsewhere, 2)):
            kept.append(trace)
            Zero3().rank(replace(context(), trace=trace))
            assert len(gone) == known
        shared = [Zero3().rank(replace(context(), trace=trace)) for trace in (larger, longer)]
    for trace, found in zip((larger, longer), shared, strict=True):
        same(found.stream, alone(replace(context(), trace=trace)).stream)


SWAPPED = tiny_trace([(1024, 2048)] * 8)
SWAPPING = (("zero.param_persistence_threshold", "10"), ("zero.max_in_cpu", "0"))


@pytest.mark.parametrize("steps", [1, 2])
def test_one_walk_through_swap_buffers_serves_any_number_of_ranks(steps: int) -> None:
    """Those that lack buffers too: the walk that ends for want of them is not gone again."""
    trace = replace(SWAPPED)
    with walks() as gone:
        for world in (2, 4):
            asked = context(world_size=world, offload=Offload.NVME, settings=SWAPPING, accumulation_steps=steps)
            before = len(gone)
            found = Zero3().rank(replace(asked, trace=trace))
            of_first, asks = len(gone) - before, alone(replace(asked, trace=SWAPPED))
            same(found.stream, asks.stream)
            assert replace(found, stream=asks.stream) == asks
            assert of_first == (0 if world == 4 else len(scripts(trace).swapping))
    kept = scripts(trace).swapping.values()
    assert sum(one.script is not None for one in kept) == 1


def test_swap_buffers_are_left_as_the_walk_leaves_them() -> None:
    asked = replace(
        context(world_size=2, offload=Offload.NVME, settings=SWAPPING, accumulation_steps=2), trace=replace(SWAPPED)
    )
    with walks() as gone:
        first, second = (Stage3(asked, buffers=8) for _ in range(2))
        first.plan()
        second.plan()
        assert len(gone) == 1
        assert first.pool is not None
        assert first.pool == second.pool
        assert first.pool.calls is not second.pool.calls
        for _ in range(2):
            few = Stage3(asked, buffers=1)
            with pytest.raises(SwapError) as ended:
                few.plan()
            assert (ended.value.needed or 0) > 1
        assert len(gone) == 2


LONG = tiny_trace([(64, 64)] * 600)


@pytest.mark.parametrize("pieces", [0, 1, 3, None])
@pytest.mark.parametrize("world", [1, 4])
def test_a_walk_begun_before_anybody_asks_is_gone_on_with(pieces: int | None, world: int) -> None:
    """Whoever asks after some of its pieces finds the rest gone by the same walk, and the same acts."""
    asked = context(world_size=world, trace=replace(LONG), accumulation_steps=2)
    with walks() as gone:
        begun = Zero3().prepares(asked)
        count = sum(1 for _ in islice(begun, pieces))
        assert count > 5 if pieces is None else count == pieces
        found = Zero3().rank(asked)
        assert len(gone) == 1
        assert not [one for one in begun if one is not None]
        Zero3().rank(asked)
        assert len(gone) == 1, "it is kept"
    asks = alone(replace(asked, trace=LONG))
    same(found.stream, asks.stream)
    assert found.collectives == asks.collectives


def test_a_walk_that_is_broken_off_is_begun_anew() -> None:
    """Whatever ends it midway, what is half done is never taken for the whole."""
    asked = context(trace=replace(LONG))
    with walks() as gone:
        begun = Zero3().prepares(asked)
        next(begun)
        with patch.object(Coordinator, "release", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            Zero3().rank(asked)
        assert list(begun) == []
        assert not scripts(asked.trace)
        found = Zero3().rank(asked)
        assert len(gone) == 2
    same(found.stream, alone(replace(asked, trace=LONG)).stream)


def test_walks_through_swap_buffers_are_begun_before_anybody_asks_too() -> None:
    asked = context(world_size=2, offload=Offload.NVME, settings=SWAPPING, trace=replace(SWAPPED))
    with walks() as gone:
        list(Zero3().prepares(asked))
        before = len(gone)
        assert before == len(scripts(asked.trace).swapping) > 0
        found = Zero3().rank(asked)
        assert len(gone) == before
    same(found.stream, alone(replace(asked, trace=SWAPPED)).stream)


def test_other_strategies_have_nothing_to_prepare() -> None:
    assert list(DistributedDataParallel().prepares(context())) == []


def test_one_who_prepares_goes_on_where_another_left_off() -> None:
    asked = context(trace=replace(LONG), accumulation_steps=2)
    with walks() as gone:
        whole = len(list(Zero3().prepares(replace(asked, trace=replace(LONG)))))
    with walks() as gone:
        one = Zero3().prepares(asked)
        assert sum(1 for _ in islice(one, 4)) == 4
        assert len(list(Zero3().prepares(asked))) == whole - 4
        assert list(one) == []
        assert len(gone) == 1
