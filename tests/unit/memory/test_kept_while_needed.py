"""What is shared among ranks of one trace is held as long as one of them is there."""

import gc
import weakref

import numpy as np

from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.plain.heap import give_back
from gpu_plan.planner.plain.recent import Recent
from gpu_plan.planner.trace.events import Category, IntArray, StepTrace
from tests.unit.trace.test_expand import step


def _stream(nbytes: int, trace: StepTrace) -> RankStream:
    builder = StreamBuilder(trace, 1)
    builder.alloc(builder.at_load(), nbytes, Category.PARAMETERS, "weights", "")
    return builder.build()


def test_ranks_that_differ_in_sizes_share_their_order_and_what_grows() -> None:
    trace = step(3, folded=False)
    first, second = _stream(512, trace), _stream(1024, trace)
    assert first.event_tensor is second.event_tensor
    assert first.per_sample is second.per_sample
    assert first.fixed[-1] == 512
    assert second.fixed[-1] == 1024
    assert first.event_segment.dtype == np.int16


def test_an_order_goes_with_its_last_rank() -> None:
    trace = step(3, folded=False)
    one = _stream(512, trace)
    held: list[weakref.ref[IntArray]] = [weakref.ref(one.event_tensor), weakref.ref(one.per_sample)]
    del one
    gc.collect()
    assert [array() for array in held] == [None, None]
    again = _stream(512, trace)
    assert again.peak(1) > 0


def test_the_last_few_are_kept() -> None:
    kept: Recent[int] = Recent(2)
    made: list[str] = []

    def make(name: str) -> int:
        made.append(name)
        return len(made)

    for name in ("a", "b", "a", "c", "a", "b"):
        kept.get(name, lambda name=name: make(name))  # type: ignore[misc]
    assert made == ["a", "b", "c", "b"]
    assert "a" in kept
    assert "c" not in kept


def test_giving_memory_back_changes_nothing_else() -> None:
    held = np.arange(100_000)
    give_back()
    give_back()
    assert int(held.sum()) == 4_999_950_000
