"""Cases small enough to be worked out by hand from the rules of CUDA's caching allocator."""

import numpy as np
import pytest

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.memory.allocator.expandable import ExpandableHeap
from gpu_plan.planner.memory.allocator.heap import FULL, Action
from gpu_plan.planner.memory.allocator.replay import AllocatorResult, AllocatorSettings, replay, simulate
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.units import GIB, MIB
from tests.support.tiny_trace import tiny_trace

EXPANDABLE = AllocatorSettings(expandable_segments=True)


def run(events: list[int], sizes: list[int], streams: list[int] | None = None, **options: object) -> AllocatorResult:
    """Events +1, +2, ... allocate tensors 0, 1, ...; -1, -2, ... free them."""
    return replay(
        np.sign(np.asarray(events, dtype=np.int64)),
        np.abs(np.asarray(events, dtype=np.int64)) - 1,
        np.asarray(sizes, dtype=np.int64),
        None if streams is None else np.asarray(streams),
        **options,  # type: ignore[arg-type]
    )


# -- sizes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nbytes", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (5 * MIB, 5 * MIB, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),  # a rest above 1 MiB is split off a fresh segment too
        (33 * MIB, 34 * MIB, 34 * MIB),  # a rest of 1 MiB is not
        (GIB, GIB, GIB),
    ],
)
def test_one_request(nbytes: int, block: int, segment: int) -> None:
    result = run([1], [nbytes])
    assert result.peak_allocated_bytes == block
    assert result.peak_reserved_bytes == result.reserved_at_end == segment
    assert result.peak_requested_bytes == nbytes
    assert result.largest_free_block == segment - block


def test_blocks_tile_their_segment_to_its_end() -> None:
    """8 MiB, 4 that are free again, 2, and what nobody has asked for of 20."""
    result = run([1, 2, 3, -2], [8 * MIB, 4 * MIB, 2 * MIB])
    assert [(block.nbytes // MIB, block.tensor) for block in result.blocks_at(2)] == [(8, 0), (4, 1), (2, 2), (6, -1)]
    assert [(block.nbytes // MIB, block.tensor) for block in result.blocks_at(3)] == [(8, 0), (4, -1), (2, 2), (6, -1)]


def test_just_above_a_mebibyte_is_large() -> None:
    result = run([1], [MIB + 1])
    assert result.peak_reserved_bytes == 20 * MIB
    assert result.peak_allocated_bytes == MIB + 512


def test_a_large_remainder_of_a_mebibyte_is_given_out() -> None:
    assert run([1], [19 * MIB]).peak_allocated_bytes == 20 * MIB
    assert run([1], [11 * MIB]).peak_allocated_bytes == 12 * MIB
    assert run([1], [11 * MIB - 512]).peak_allocated_bytes == 11 * MIB - 512


def test_the_slack_counts_as_allocated_not_as_requested() -> None:
    result = run([1, -1, 2], [20 * MIB, 19 * MIB + 100])
    assert result.allocated.tolist() == [20 * MIB, 0, 20 * MIB]
    assert result.peak_requested_bytes == 20 * MIB
    assert result.block_bytes(2).tolist() == [20 * MIB, 20 * MIB]


def test_empty_tensors_take_nothing() -> None:
    result = run([1, -1], [0])
    assert result.peak_reserved_bytes == result.peak_allocated_bytes == 0
    assert result.addresses.tolist() == [-1, -1]


def test_no_events() -> None:
    result = run([], [])
    assert result.peak_allocated_at == result.peak_reserved_at == -1
    assert result.peak_reserved_bytes == result.fragmentation_bytes == result.largest_free_block == 0
    assert result.segments == ()


# -- pools and best fit ------------------------------------------------------------------------------------


def test_small_requests_share_a_segment() -> None:
    result = run([1, 2, 3, 4], [MIB, 512 * 1024, 512 * 1024, 1])
    assert result.reserved.tolist() == [2 * MIB, 2 * MIB, 2 * MIB, 4 * MIB]


def test_large_requests_share_a_20_mib_segment() -> None:
    result = run([1, 2, 3], [8 * MIB, 8 * MIB, 8 * MIB])
    assert result.reserved.tolist() == [20 * MIB, 20 * MIB, 40 * MIB]
    assert result.largest_free_block == 12 * MIB


def test_small_requests_never_use_large_blocks() -> None:
    result = run([1, -1, 2], [64 * MIB, MIB])
    assert result.peak_reserved_bytes == 66 * MIB


def test_the_smallest_block_that_fits_is_taken() -> None:
    # Segments of 40, 30 and 20 MiB are free: 25 MiB goes into the one of 30.
    result = run([1, 2, 3, -1, -2, -3, 4], [40 * MIB, 30 * MIB, 20 * MIB, 25 * MIB])
    assert result.addresses[6] == result.addresses[1]
    assert result.peak_reserved_bytes == 90 * MIB


def test_among_equal_blocks_the_lowest_address_is_taken() -> None:
    result = run([1, 2, -2, -1, 3], [32 * MIB, 32 * MIB, 32 * MIB])
    assert result.addresses[4] == result.addresses[0] < result.addresses[1]


def test_streams_do_not_share_blocks() -> None:
    same = run([1, -1, 2], [32 * MIB, 32 * MIB], [0, 0])
    other = run([1, -1, 2], [32 * MIB, 32 * MIB], [0, 7])
    assert same.peak_reserved_bytes == 32 * MIB
    assert other.peak_reserved_bytes == 64 * MIB
    assert [segment.stream for segment in other.segments] == [0, 7]


def test_free_neighbours_merge_within_their_segment() -> None:
    # Three blocks of a 20 MiB segment, freed out of order, serve 18 MiB again; the rest of 2 MiB is split off.
    result = run([1, 2, 3, -1, -3, -2, 4], [6 * MIB, 6 * MIB, 6 * MIB, 18 * MIB])
    assert result.peak_reserved_bytes == 20 * MIB
    assert result.addresses[6] == result.addresses[0]


def test_neighbouring_segments_do_not_merge() -> None:
    result = run([1, 2, -1, -2, 3], [20 * MIB, 20 * MIB, 40 * MIB])
    assert result.peak_reserved_bytes == 80 * MIB


def test_a_block_in_use_keeps_a_segment_in_parts() -> None:
    # 9 + 9 MiB in one segment; the second stays, so 10 MiB needs a segment of its own.
    result = run([1, 2, -1, 3], [9 * MIB, 9 * MIB, 10 * MIB])
    assert result.peak_reserved_bytes == 30 * MIB
    assert result.fragmentation_bytes == 30 * MIB - 19 * MIB


# -- pressure ----------------------------------------------------------------------------------------------


def test_cached_segments_are_given_back_before_death() -> None:
    result = run([1, -1, 2], [32 * MIB, 48 * MIB], capacity=64 * MIB)
    assert result.oom_at is None
    assert result.num_alloc_retries == 1
    assert [call.action for call in result.calls] == [
        Action.SEGMENT_ALLOC,
        Action.SEGMENT_FREE,
        Action.SEGMENT_ALLOC,
    ]
    assert result.peak_reserved_bytes == 48 * MIB


def test_a_segment_in_use_is_not_given_back() -> None:
    # One megabyte of a 20 MiB segment is in use: 18 free MiB help nobody.
    result = run([1, 2, -1, 3], [8 * MIB, 2 * MIB, 48 * MIB], capacity=64 * MIB)
    oom = result.oom_at
    assert oom is not None
    assert (oom.event, oom.tensor, oom.requested_bytes, oom.tried_bytes) == (3, 2, 48 * MIB, 48 * MIB)
    assert (oom.free_bytes, oom.allocated_bytes, oom.reserved_bytes) == (44 * MIB, 2 * MIB, 20 * MIB)
    assert result.num_alloc_retries == 1
    assert len(result.charged) == 3


def test_all_streams_give_back() -> None:
    result = run([1, -1, 2, -2, 3], [32 * MIB, MIB, 64 * MIB], [1, 2, 0], capacity=64 * MIB)
    assert result.oom_at is None
    assert result.reserved_at_end == 64 * MIB


@pytest.mark.parametrize("plain", [False, True])
def test_what_was_reserved_before_cached_memory_went_back_is_the_peak(plain: bool) -> None:
    """40 and 50 MiB are cached when 70 are asked for, in 100: both go back, and 70 are left."""
    result = run([1, 2, -1, -2, 3], [40 * MIB, 50 * MIB, 70 * MIB], capacity=100 * MIB, plain=plain)
    assert (result.peak_reserved_bytes, result.reserved_at_end) == (90 * MIB, 70 * MIB)
    assert result.retried_at == (4,)


def test_expandable_segments_live_where_fixed_ones_die() -> None:
    sizes = [30 * MIB, 2 * MIB, 30 * MIB, 62 * MIB]
    # Two segments of 30 MiB cannot become one of 60; the growing one holds them side by side.
    fixed = run([1, 3, 2, -1, -3, 4], [*sizes[:3], 60 * MIB], capacity=100 * MIB)
    assert fixed.num_alloc_retries == 1
    growing = run([1, 3, 2, -1, -3, 4], [*sizes[:3], 60 * MIB], capacity=100 * MIB, settings=EXPANDABLE)
    assert growing.num_alloc_retries == 0
    assert growing.peak_reserved_bytes == 80 * MIB


# -- expandable segments -----------------------------------------------------------------------------------


def test_expandable_maps_whole_pages() -> None:
    result = run([1, 2, 3], [21 * MIB, MIB, 25 * MIB], settings=EXPANDABLE)
    assert result.reserved.tolist() == [40 * MIB, 42 * MIB, 62 * MIB]
    # 21 MiB of 40 are used; 25 more need 6 MiB beyond, one page of 20.
    assert [call.nbytes for call in result.calls] == [40 * MIB, 2 * MIB, 20 * MIB]
    assert len(result.segments) == 2


def test_expandable_splits_off_any_remainder() -> None:
    assert run([1], [19 * MIB + 512], settings=EXPANDABLE).peak_allocated_bytes == 19 * MIB + 512


def test_expandable_reserves_less_where_sizes_grow() -> None:
    sizes = [40 * MIB + step * 3 * MIB for step in range(12)]
    events = [event for tensor in range(1, 13) for event in (tensor, -tensor)]
    fixed, growing = run(events, sizes), run(events, sizes, settings=EXPANDABLE)
    assert growing.peak_reserved_bytes == 80 * MIB
    assert fixed.peak_reserved_bytes == sum(-(-size // (2 * MIB)) * 2 * MIB for size in sizes)


def test_expandable_prefers_a_block_that_cannot_grow() -> None:
    # Free: 20 MiB in the middle and 8 MiB at the end, which could grow. 6 MiB goes into the middle.
    result = run([1, 2, 3, -2, 4], [20 * MIB, 20 * MIB, 12 * MIB, 6 * MIB], settings=EXPANDABLE)
    assert result.addresses[4] == result.addresses[1]


def test_expandable_unmaps_pages_under_pressure_and_fills_the_gap_first() -> None:
    # 20 MiB used, 40 freed, 20 used; another stream needs 40: the middle pages go there.
    sizes = [20 * MIB, 40 * MIB, 20 * MIB, 40 * MIB, 20 * MIB]
    result = run([1, 2, 3, -2, 4, -4, 5], sizes, [0, 0, 0, 1, 0], capacity=80 * MIB, settings=EXPANDABLE)
    assert result.oom_at is None
    assert result.num_alloc_retries == 2
    assert [call.action for call in result.calls if call.event == 4] == [Action.SEGMENT_UNMAP, Action.SEGMENT_MAP]
    assert result.addresses[6] == result.addresses[1]


def test_expandable_keeps_part_pages() -> None:
    # 30 MiB are free, behind 5 in use: only the page from 20 to 40 is whole.
    result = run([1, 2, -2, 3], [5 * MIB, 30 * MIB, 30 * MIB], [0, 0, 1], capacity=60 * MIB, settings=EXPANDABLE)
    assert result.num_alloc_retries == 1
    assert result.reserved.tolist() == [20 * MIB, 40 * MIB, 40 * MIB, 60 * MIB]


# -- other settings ----------------------------------------------------------------------------------------


def test_max_split_size_keeps_large_blocks_whole() -> None:
    settings = AllocatorSettings(max_split_size=64 * MIB)
    # A block of 128 MiB may not be split, so 32 MiB gets a segment; 120 MiB is near enough to take it whole.
    result = run([1, -1, 2, 3], [128 * MIB, 32 * MIB, 120 * MIB], settings=settings)
    assert result.reserved.tolist() == [128 * MIB, 128 * MIB, 160 * MIB, 160 * MIB]
    assert result.charged[3] == 128 * MIB
    # 100 MiB is not: more than 20 MiB would be wasted.
    assert run([1, -1, 2], [128 * MIB, 100 * MIB], settings=settings).peak_reserved_bytes == 228 * MIB


def test_max_split_size_gives_back_one_large_block_first() -> None:
    settings = AllocatorSettings(max_split_size=64 * MIB)
    sizes = [100 * MIB, 200 * MIB, 30 * MIB, 70 * MIB]
    result = run([1, 2, 3, -1, -2, -3, 4], sizes, capacity=340 * MIB, settings=settings)
    assert result.num_alloc_retries == 0
    freed = [call.nbytes for call in result.calls if call.action is Action.SEGMENT_FREE]
    assert freed == [100 * MIB]


@pytest.mark.parametrize(
    ("nbytes", "divisions", "block"),
    [
        (1200, 2, 1536),  # between 1024 and 2048, in two steps
        (1200, 4, 1536),  # 4 x 512 is above the size: plain rounding
        (9 * MIB, 4, 10 * MIB),
        (8 * MIB, 4, 8 * MIB),
        (9 * MIB, 1, 9 * MIB),
        (9 * MIB + 1, 8, 10 * MIB),
    ],
)
def test_roundup_power2_divisions(nbytes: int, divisions: int, block: int) -> None:
    assert AllocatorSettings(roundup_power2_divisions=divisions).round_size(nbytes) == block


def test_roundup_power2_divisions_by_interval() -> None:
    # Index 0 is everything below 2 MiB, index 3 is 8 to 16 MiB.
    settings = AllocatorSettings(roundup_power2_divisions=(0, 0, 0, 2, *[0] * 12))
    assert settings.round_size(9 * MIB) == 12 * MIB
    assert settings.round_size(5 * MIB) == 5 * MIB
    assert settings.round_sizes(np.asarray([9 * MIB, 1, 0])).tolist() == [12 * MIB, 512, 0]


def test_garbage_collection_gives_back_what_is_old() -> None:
    settings = AllocatorSettings(garbage_collection_threshold=0.5, process_limit=200 * MIB)
    # 64 and 48 MiB lie idle, above half of 200: at 80 MiB more, the older one goes, without a retry.
    result = run([1, 2, -1, 3, -2, 4], [64 * MIB, 48 * MIB, 62 * MIB, 80 * MIB], settings=settings)
    assert result.num_alloc_retries == 0
    assert [call.nbytes for call in result.calls if call.action is Action.SEGMENT_FREE] == [48 * MIB]
    assert run([1, 2, -1, 3, -2, 4], [64 * MIB, 48 * MIB, 62 * MIB, 80 * MIB]).peak_reserved_bytes == 192 * MIB


def test_process_limit_is_a_capacity() -> None:
    result = run([1, 2], [32 * MIB, 64 * MIB], settings=AllocatorSettings(process_limit=80 * MIB), capacity=GIB)
    assert result.oom_at is not None
    assert result.oom_at.free_bytes == 48 * MIB


def test_large_segment_size() -> None:
    assert run([1], [5 * MIB], settings=AllocatorSettings(large_segment_size=64 * MIB)).peak_reserved_bytes == 64 * MIB


@pytest.mark.parametrize(
    "options",
    [
        {"large_segment_size": 10 * MIB},
        {"large_segment_size": 20 * MIB + 1},
        {"max_split_size": 19 * MIB},
        {"max_non_split_rounding_size": MIB},
        {"garbage_collection_threshold": 1.0},
        {"garbage_collection_threshold": -0.1},
        {"roundup_power2_divisions": 3},
        {"roundup_power2_divisions": (2, 2)},
        {"process_limit": -1},
    ],
)
def test_settings_that_torch_refuses(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        AllocatorSettings(**options)  # type: ignore[arg-type]


# -- the stream --------------------------------------------------------------------------------------------


def test_events_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="event 1 allocates tensor 0, which is alive"):
        run([1, 1], [512])
    with pytest.raises(ValueError, match="event 2 frees tensor 0, which is not alive"):
        run([1, -1, -1], [512])


def test_simulate_runs_the_stream_in_order() -> None:
    builder = StreamBuilder(tiny_trace([(64, 64)]), accumulation_steps=1)
    builder.alloc(builder.at_load(), 30 * MIB, Category.PARAMETERS, "weights")
    for iteration in range(2):
        builder.transient(builder.at_step(iteration), 50 * MIB, Category.TEMPORARY, "step")
    stream = builder.build()
    result = simulate(stream, 3)
    assert len(result.charged) == len(stream.event_sign)
    assert result.peak_allocated_bytes >= int(stream.live(3).max())
    assert {segment.nbytes for segment in result.segments if segment.nbytes > 20 * MIB} == {30 * MIB, 50 * MIB}
    assert simulate(stream, 3, capacity=60 * MIB).oom_at is not None


def test_falling_addresses_decide_between_equal_blocks() -> None:
    events, sizes = [1, 2, -2, -1, 3], [32 * MIB, 32 * MIB, 32 * MIB]
    rising, descending = run(events, sizes), run(events, sizes, descending_addresses=True)
    assert descending.addresses[4] == descending.addresses[1] < descending.addresses[0]
    assert rising.addresses[4] == rising.addresses[0]
    assert descending.peak_reserved_bytes == rising.peak_reserved_bytes


def test_the_older_of_two_cached_segments_is_collected() -> None:
    """garbage_collect_cached_blocks: blocks of at least the average age go first, until the target is reached."""
    settings = AllocatorSettings(garbage_collection_threshold=0.5, process_limit=200 * MIB)
    # 40 and 44 MiB lie idle, the first for one request longer; 134 MiB are reserved, a hundred are allowed.
    result = run([1, 2, -1, 3, -2, 4], [40 * MIB, 44 * MIB, 50 * MIB, 60 * MIB], settings=settings)
    assert [call.nbytes for call in result.calls if call.action is Action.SEGMENT_FREE] == [40 * MIB]


def test_a_request_that_cannot_be_mapped_leaves_its_first_pages_to_others() -> None:
    """expandable_segments: try_allocate_expandable_block keeps what it has mapped, as a free block."""
    heap = ExpandableHeap(AllocatorSettings(expandable_segments=True), 50 * MIB)
    pool = heap.pool(0, False)
    heap.free(pool, heap.malloc(pool, 20 * MIB))
    assert heap.reserved == 20 * MIB
    assert heap.malloc(pool, 45 * MIB) == FULL  # 25 MiB more are 40 in whole pages: above the device's 50
    assert heap.reserved == 0, "given back with the rest of the cache, and not lost"
    assert heap.malloc(pool, 20 * MIB) != FULL
