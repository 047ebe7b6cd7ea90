"""The peak of a stream as the highest of a few lines: equal to the sum event by event, whatever the sizes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.memory.lines import BLOCK, Peaks, envelope
from gpu_plan.planner.strategy.kinds.single import Single
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

SIZES = st.one_of(st.integers(0, 3000), st.integers(0, 8).map(lambda blocks: blocks * BLOCK))


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """Signs, tensors, fixed and for each sample: every storage comes, and some go."""
    count = draw(st.integers(1, 12))
    events: list[tuple[int, int]] = []
    for tensor in range(count):
        events.insert(draw(st.integers(0, len(events))), (1, tensor))
        if draw(st.booleans()):
            events.insert(draw(st.integers(events.index((1, tensor)) + 1, len(events))), (-1, tensor))
    columns = [draw(st.lists(SIZES, min_size=count, max_size=count)) for _ in range(2)]
    signs, tensors = zip(*events, strict=True)
    return tuple(np.asarray(column, dtype=np.int64) for column in (signs, tensors, *columns))


def summed(stream: tuple[np.ndarray, ...], batch: int) -> int:
    signs, tensors, fixed, per_sample = stream
    sizes = -(-(fixed + per_sample * batch) // BLOCK) * BLOCK
    return max(0, int(np.cumsum(signs * sizes[tensors]).max()))


@given(streams(), st.lists(st.integers(1, 2000), min_size=1, max_size=30))
def test_equal_to_the_sum_at_every_micro_batch_however_often_it_is_asked(
    stream: tuple[np.ndarray, ...], batches: list[int]
) -> None:
    peaks = Peaks()
    for batch in 6 * batches:
        assert peaks.of(batch, *stream) == summed(stream, batch)


def test_whole_blocks_lie_on_straight_lines_and_other_sizes_on_several() -> None:
    signs, tensors, fixed = np.asarray([1]), np.asarray([0]), np.asarray([100])
    whole, parts = Peaks(), Peaks()
    for batch in range(1, 17):
        assert whole.of(batch, signs, tensors, fixed, np.asarray([2 * BLOCK])) == BLOCK + 2 * BLOCK * batch
        parts.of(batch, signs, tensors, fixed, np.asarray([BLOCK // 4]))
    assert len(whole._asked) == 1
    assert len(parts._asked) == 4


def test_of_many_lines_those_that_are_ever_the_highest() -> None:
    heights = np.asarray([0, 20, 60, 59, 90, 5])
    slopes = np.asarray([9, 8, 4, 4, 0, 2])
    assert envelope(heights, slopes) == [(0, 9), (20, 8), (60, 4), (90, 0)]
    assert envelope(np.asarray([7]), np.asarray([0])) == [(7, 0)]
    assert envelope(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)) == []


def test_a_bound_costs_the_same_with_four_times_the_layers() -> None:
    """Once its lines are known: as many of them."""
    known = []
    for layers in (8, 16, 32):
        stream = Single().rank(small_context(tiny_trace([(512, 64)] * layers), world_size=1)).stream
        for batch in range(8, 64, 8):  # a sample's tokens are an eighth of a block
            assert stream.peak(batch) == int(stream.live(batch).max())
        (lines,) = stream._peaks._lines.values()
        known.append(len(lines))
    assert len(set(known)) == 1
    assert known[0] < 8
