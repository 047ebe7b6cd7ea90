"""What holds for any run: tiling, sums, capacity, retries, and agreement with a second, naive allocator."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu_plan.planner.memory.allocator.expandable import ExpandableHeap
from gpu_plan.planner.memory.allocator.heap import Heap
from gpu_plan.planner.memory.allocator.replay import AllocatorResult, AllocatorSettings, replay
from gpu_plan.planner.units import GIB, MIB
from tests.support.naive_allocator import NaiveAllocator, Rules
from tests.support.sample import sample


@dataclass(frozen=True)
class Run:
    """Events that make sense: nothing is freed before it is allocated."""

    signs: np.ndarray
    tensors: np.ndarray
    sizes: np.ndarray
    streams: np.ndarray

    def replay(self, **options: object) -> AllocatorResult:
        return replay(self.signs, self.tensors, self.sizes, self.streams, **options)  # type: ignore[arg-type]

    def closed(self) -> "Run":
        """The run with everything freed at the end."""
        count = np.bincount(self.tensors, weights=self.signs, minlength=len(self.sizes))
        alive = np.flatnonzero(count > 0)
        return Run(
            np.concatenate([self.signs, np.full(len(alive), -1)]),
            np.concatenate([self.tensors, alive]),
            self.sizes,
            self.streams,
        )


# Few distinct sizes meet again and split each other; the odd ones sit at the edges of the rules.
EDGES = [1, 512, 513, 4096, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB, 10 * MIB - 513, 10 * MIB, 19 * MIB, 19 * MIB + 1]
SIZES = st.one_of(
    st.sampled_from(EDGES),
    st.integers(0, 3 * MIB),
    st.integers(MIB, 70 * MIB),
    st.integers(1, 30).map(lambda count: count * MIB),
)


@st.composite
def runs(draw: st.DrawFn, streams: int = 2, steps: int = 60) -> Run:
    signs, tensors, sizes, owners, alive = [], [], [], [], []
    for _ in range(draw(st.integers(1, steps))):
        if alive and draw(st.booleans()):
            signs.append(-1)
            tensors.append(alive.pop(draw(st.integers(0, len(alive) - 1))))
        else:
            sizes.append(draw(st.sampled_from(sizes)) if sizes and draw(st.booleans()) else draw(SIZES))
            owners.append(draw(st.integers(0, streams - 1)))
            alive.append(len(sizes) - 1)
            signs.append(1)
            tensors.append(len(sizes) - 1)
    return Run(*(np.asarray(column, dtype=np.int64) for column in (signs, tensors, sizes, owners)))


RULES = st.builds(
    Rules,
    expandable=st.booleans(),
    max_split=st.sampled_from([float("inf"), float("inf"), 20 * MIB, 21 * MIB, 40 * MIB]),
    divisions=st.sampled_from([0, 0, 1, 2, 8]),
    threshold=st.sampled_from([0.0, 0.0, 0.3, 0.8]),
    large_segment=st.sampled_from([20 * MIB, 20 * MIB, 12 * MIB]),
    limit=st.sampled_from([float("inf"), 120 * MIB, 300 * MIB]),
    capacity=st.sampled_from([float("inf"), 30 * MIB, 100 * MIB, 150 * MIB, 301 * MIB]),
)


def to_settings(rules: Rules) -> AllocatorSettings:
    return AllocatorSettings(
        expandable_segments=rules.expandable,
        max_split_size=None if rules.max_split == float("inf") else int(rules.max_split),
        roundup_power2_divisions=rules.divisions,
        garbage_collection_threshold=rules.threshold,
        large_segment_size=rules.large_segment,
        process_limit=None if rules.limit == float("inf") else int(rules.limit),
    )


def to_capacity(rules: Rules) -> int | None:
    return None if rules.capacity == float("inf") else int(rules.capacity)


def compare(run: Run, rules: Rules) -> AllocatorResult:
    """Event by event: the same block sizes, reserved bytes and retries, and the same death."""
    result = run.replay(capacity=to_capacity(rules), settings=to_settings(rules))
    naive = NaiveAllocator(rules)
    alive, peak = {}, 0
    charged, reserved, died = [], [], None
    for event, (sign, tensor) in enumerate(zip(run.signs.tolist(), run.tensors.tolist(), strict=True)):
        size = int(run.sizes[tensor])
        change = 0
        if size and sign > 0:
            node = naive.malloc(size, int(run.streams[tensor]))
            if node is None:
                died = event
                break
            alive[tensor] = node
            change = node.size
        elif size:
            change = -alive[tensor].size
            naive.free(alive.pop(tensor))
        charged.append(change)
        reserved.append(naive.reserved)
        peak = max(peak, naive.reserved)
    assert result.charged.tolist() == charged
    assert result.reserved.tolist() == reserved
    assert result.num_alloc_retries == naive.retries
    assert result.peak_reserved_bytes >= peak
    assert result.reserved_at_end == naive.reserved
    assert (result.oom_at.event if result.oom_at else None) == died
    if died is None:
        idle = [node.size for node in naive.nodes if node.mapped and not node.in_use]
        blocks = result.blocks_at(len(charged) - 1)
        assert sorted(block.nbytes for block in blocks if block.tensor < 0) == sorted(idle)
    return result


@given(runs(), RULES)
@settings(max_examples=200, deadline=None)
def test_agrees_with_a_naive_allocator(run: Run, rules: Rules) -> None:
    compare(run, rules)


@pytest.mark.slow
@given(runs(streams=3, steps=400), RULES)
@settings(max_examples=2000, deadline=None)
def test_agrees_with_a_naive_allocator_on_long_runs(run: Run, rules: Rules) -> None:
    compare(run, rules)


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("capacity", sample([float("inf"), 1200 * MIB, 500 * MIB], kept=[500 * MIB]))
@pytest.mark.parametrize("seed", sample(range(4), kept=[0]))
def test_agrees_on_a_long_random_run(seed: int, capacity: float, expandable: bool) -> None:
    random = np.random.default_rng(seed)
    choices = np.concatenate([random.integers(1, 80 * MIB, 15), random.integers(1, 2 * MIB, 15)])
    alive: list[int] = []
    signs, tensors = [], []
    for tensor in range(1500):
        while len(alive) > random.integers(1, 60):
            signs.append(-1)
            tensors.append(alive.pop(int(random.integers(len(alive)))))
        signs.append(1)
        tensors.append(tensor)
        alive.append(tensor)
    run = Run(np.asarray(signs), np.asarray(tensors), random.choice(choices, 1500), random.integers(0, 2, 1500))
    result = compare(run, Rules(expandable=expandable, capacity=capacity))
    if capacity == 500 * MIB:
        assert result.num_alloc_retries > 0


@given(runs(), RULES)
@settings(max_examples=80, deadline=None)
def test_blocks_tile_their_segments(run: Run, rules: Rules) -> None:
    result = run.replay(capacity=to_capacity(rules), settings=to_settings(rules))
    handled = len(result.charged)
    for event in {handled // 2, result.peak_allocated_at, handled - 1} if handled else ():
        blocks = result.blocks_at(event)
        position = 0
        for segment in result.segments_at(event):
            at = segment.address
            while position < len(blocks) and blocks[position].address < segment.address + segment.nbytes:
                assert blocks[position].address == at
                assert blocks[position].nbytes > 0
                at += blocks[position].nbytes
                position += 1
            assert at == segment.address + segment.nbytes
        assert position == len(blocks)
        used = [block for block in blocks if block.tensor >= 0]
        assert sum(block.nbytes for block in used) == result.allocated[event]
        assert sum(segment.nbytes for segment in result.segments_at(event)) == result.reserved[event]
        assert all(block.nbytes >= run.sizes[block.tensor] for block in used)
        assert all(a.tensor >= 0 or b.tensor >= 0 for a, b in _neighbours(result, event))
    if len(result.charged):
        free = [block.nbytes for block in result.blocks_at(result.peak_allocated_at) if block.tensor < 0]
        assert result.largest_free_block == max(free, default=0)


def _neighbours(result: AllocatorResult, event: int) -> list[tuple[object, ...]]:
    blocks = result.blocks_at(event)
    heads = {segment.address for segment in result.segments_at(event)}
    return [(a, b) for a, b in pairwise(blocks) if b.address not in heads]


@given(runs(), RULES)
@settings(max_examples=80, deadline=None)
def test_figures_hold_together(run: Run, rules: Rules) -> None:
    result = run.replay(capacity=to_capacity(rules), settings=to_settings(rules))
    allocated, reserved = result.allocated, result.reserved
    assert (reserved >= allocated).all()
    assert (allocated >= 0).all()
    assert result.peak_allocated_bytes == max(allocated, default=0)
    assert result.peak_reserved_bytes >= max(reserved, default=0)
    assert result.peak_requested_bytes <= result.peak_allocated_bytes
    assert result.fragmentation_bytes >= 0
    assert result.peak_reserved_bytes <= rules.capacity
    # torch tests the process limit with the bytes of a plain segment, then maps whole pages.
    assert result.peak_reserved_bytes <= rules.limit + (rules.large_segment if rules.expandable else 0)
    if result.oom_at:
        assert result.num_alloc_retries >= 1
        # Whole pages are mapped, while the message names the bytes that a segment of its own would have.
        page = rules.large_segment if rules.expandable else 1
        assert result.oom_at.free_bytes < -(-result.oom_at.tried_bytes // page) * page
        assert result.oom_at.allocated_bytes == (allocated[-1] if len(allocated) else 0)
    alive = np.bincount(run.tensors[: result.peak_allocated_at + 1], weights=run.signs[: result.peak_allocated_at + 1])
    standing = np.pad(alive, (0, len(run.sizes) - len(alive)))
    if result.peak_allocated_at >= 0:
        assert (result.block_bytes(len(run.sizes)) * standing).sum() == result.peak_allocated_bytes


@given(runs(), RULES)
@settings(max_examples=60, deadline=None)
def test_same_run_same_result(run: Run, rules: Rules) -> None:
    first, second = (run.replay(capacity=to_capacity(rules), settings=to_settings(rules)) for _ in range(2))
    assert first.calls == second.calls
    assert first.addresses.tolist() == second.addresses.tolist()


@given(runs(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_everything_freed_leaves_nothing(run: Run, expandable: bool) -> None:
    result = run.closed().replay(settings=AllocatorSettings(expandable_segments=expandable))
    assert result.allocated[-1] == 0
    assert result.reserved_at_end == sum(segment.nbytes for segment in result.segments)
    heap = (ExpandableHeap if expandable else Heap)(AllocatorSettings(expandable_segments=expandable), None)
    blocks = {}
    for sign, tensor in zip(run.closed().signs.tolist(), run.closed().tensors.tolist(), strict=True):
        size = heap.settings.round_size(int(run.sizes[tensor]))
        if size:
            pool = heap.pool(0, size <= MIB)
            if sign > 0:
                blocks[tensor] = heap.malloc(pool, size)
            else:
                heap.free(pool, blocks.pop(tensor))
    heap.empty_cache()
    assert heap.reserved == 0
    assert not any(pool.free for pool in heap.pools.values())


@given(runs(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_ample_capacity_changes_nothing(run: Run, expandable: bool) -> None:
    options = AllocatorSettings(expandable_segments=expandable)
    unlimited = run.replay(settings=options)
    enough = run.replay(settings=options, capacity=unlimited.peak_reserved_bytes)
    assert enough.num_alloc_retries == 0
    assert enough.calls == unlimited.calls
    assume(unlimited.peak_reserved_bytes > 0)
    less = run.replay(settings=options, capacity=unlimited.peak_reserved_bytes - 1)
    assert less.num_alloc_retries > 0
    assert less.peak_reserved_bytes < unlimited.peak_reserved_bytes


@given(runs(streams=1), st.integers(0, GIB))
@settings(max_examples=60, deadline=None)
def test_capacity_below_what_stands_is_fatal(run: Run, capacity: int) -> None:
    result = run.replay(capacity=capacity)
    needed = int(np.cumsum(run.signs * -(-run.sizes // 512)[run.tensors] * 512).max())
    if needed > capacity:
        assert result.oom_at is not None
