"""Blocks and segments of CUDA's caching allocator, with addresses.

Mirrors DeviceCachingAllocator of pytorch c10/cuda/CUDACachingAllocator.cpp: malloc, free_block, get_free_block,
alloc_block, release_available_cached_blocks, release_cached_blocks, garbage_collect_cached_blocks.

Every segment starts at a new address, with a gap, above all earlier ones or below them: addresses given back are not
used again. The real driver may hand out any; this only decides which of several free blocks of equal size is taken,
and with that how much memory fragments: published runs agree now with the one order, now with the other.

A block is one integer, its size above its address, so that a sorted list of them is the order of best fit; blocks at
rest are also known by both ends, which finds the neighbours to merge with. An 8B model's run is 60 thousand events,
and a search evaluates hundreds of them: objects per block would cost most of the time.
"""

from bisect import bisect_left, insort
from enum import StrEnum
from heapq import heappop, heappush

from gpu_plan.planner.memory.allocator.settings import MIN_BLOCK, SMALL_LIMIT, AllocatorSettings
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import MIB

SHIFT = 52
"""Bits of a block's integer that hold its address."""
ADDRESS = (1 << SHIFT) - 1
FULL = -1
"""What malloc answers when the device is full."""
_GAP = 2 * MIB
_TOP = 1 << (SHIFT - 1)
"""Where descending addresses begin."""
NEVER = 1 << 62
"""Beyond any event, and any size."""


class Action(StrEnum):
    """What the allocator asks of the driver, named as in a memory snapshot's trace."""

    SEGMENT_ALLOC = "segment_alloc"
    SEGMENT_FREE = "segment_free"
    SEGMENT_MAP = "segment_map"
    SEGMENT_UNMAP = "segment_unmap"


@dataclass(frozen=True, slots=True)
class DriverCall:
    """Memory taken from or given back to the driver, while a given event was handled."""

    event: int
    action: Action
    address: int
    nbytes: int
    stream: int
    small: bool

    @property
    def change(self) -> int:
        """Bytes by which reserved memory grows or shrinks."""
        return self.nbytes if self.action in (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP) else -self.nbytes


class Pool:
    """Free blocks of one stream, of the small or the large kind."""

    __slots__ = ("free", "holes", "least_rest", "small", "stream", "whole_from")

    def __lt__(self, other: "Pool") -> bool:
        return (self.stream, self.small) < (other.stream, other.small)

    def __init__(self, stream: int, small: bool, settings: AllocatorSettings) -> None:
        self.stream = stream
        self.small = small
        self.free: list[int] = []
        """Sorted blocks, size above address."""
        self.holes: dict[int, int] = {}
        """Expandable segments: unmapped address ranges, start to bytes."""
        fine = small or settings.expandable_segments
        self.least_rest = MIN_BLOCK if fine else SMALL_LIMIT + 1
        """The smallest remainder that is split off (should_split)."""
        self.whole_from = NEVER if fine or settings.max_split_size is None else settings.max_split_size
        """Requests from this size on take a block whole."""


class Heap:
    """One device's memory, its segments taken with cudaMalloc."""

    def __init__(
        self, settings: AllocatorSettings, capacity: int | None, *, descending_addresses: bool = False
    ) -> None:
        self.settings = settings
        self.capacity = NEVER if capacity is None else capacity
        self.limit = NEVER if settings.process_limit is None else settings.process_limit
        self.reserved = 0
        self.retried_at: list[int] = []
        """Events at which cached memory was given back for want of room (num_alloc_retries)."""
        self.clock = 0
        """Index of the event being handled, for the record of driver calls."""
        self.calls: list[DriverCall] = []
        self.pools: dict[tuple[int, bool], Pool] = {}
        self.waiting: list[tuple[int, int, Pool]] = []
        """Heap of freed blocks that the device may still use: event from which on it does not, block, pool."""
        self.settled: list[tuple[int, int]] = []
        """Event at which a block that waited came back, and its bytes."""
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._segments: dict[int, tuple[int, Pool]] = {}
        self._cursor = _TOP if descending_addresses else _GAP
        self._descending = descending_addresses
        self._max_split = NEVER if settings.max_split_size is None else settings.max_split_size
        self._plain = settings.max_split_size is None and not settings.collects_garbage
        self._born: dict[int, int] | None = {} if settings.collects_garbage else None
        self._searches = 0

    def pool(self, stream: int, small: bool) -> Pool:
        """The pool of a stream, made at first use."""
        key = (stream, small)
        if key not in self.pools:
            self.pools[key] = self._new_pool(stream, small)
        return self.pools[key]

    def _new_pool(self, stream: int, small: bool) -> Pool:
        return Pool(stream, small, self.settings)

    # -- blocks ------------------------------------------------------------------------------------------

    def malloc(self, pool: Pool, size: int) -> int:
        """A block for a rounded size above zero: `block >> SHIFT` bytes at `block & ADDRESS`, or FULL."""
        free = pool.free
        at = bisect_left(free, size << SHIFT) if self._plain else self._choose(pool, size)
        if at < len(free):
            block = free.pop(at)
        else:
            block = self._obtain(pool, size)
            if block < 0:
                return FULL
        address = block & ADDRESS
        nbytes = block >> SHIFT
        end = address + nbytes
        rest = nbytes - size
        del self._starts[address]
        if rest < pool.least_rest or size >= pool.whole_from:
            del self._ends[end]
            return block
        cut = address + size
        self._starts[cut] = rest
        self._ends[end] = cut
        insort(free, rest << SHIFT | cut)
        if self._born is not None:
            self._born[cut] = self._searches
        return size << SHIFT | address

    def free(self, pool: Pool, block: int) -> None:
        """A block goes back to its pool and merges with free neighbours of its segment."""
        starts, ends, free = self._starts, self._ends, pool.free
        address = block & ADDRESS
        end = address + (block >> SHIFT)
        after = starts.pop(end, 0)
        if after:
            del free[bisect_left(free, after << SHIFT | end)]
            end += after
        before = ends.pop(address, -1)
        if before >= 0:
            del free[bisect_left(free, (address - before) << SHIFT | before)]
            address = before
        size = end - address
        starts[address] = size
        ends[end] = address
        insort(free, size << SHIFT | address)
        if self._born is not None:
            self._born[address] = self._searches

    def free_later(self, pool: Pool, block: int, event: int) -> None:
        """A block goes back to its pool in the first request from `event` on (insert_events)."""
        heappush(self.waiting, (event, block, pool))

    def settle(self, event: int) -> None:
        """Blocks with which the device is done by an event are free (process_events)."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= event:
            _, block, pool = heappop(waiting)
            self.settled.append((self.clock, block >> SHIFT))
            self.free(pool, block)

    def empty_cache(self) -> None:
        """Waits for the device, then gives back everything that holds no block in use (release_cached_blocks)."""
        self.settle(NEVER)
        for address, (nbytes, _) in list(self._segments.items()):
            if self._starts.get(address) == nbytes:
                self._release(address)

    # -- search ------------------------------------------------------------------------------------------

    def _choose(self, pool: Pool, size: int) -> int:
        """Position of the block to take, or past the end; for settings that bend the best fit."""
        free = pool.free
        if not pool.small:
            self._searches += 1
        at = bisect_left(free, size << SHIFT)
        return at if at < len(free) and self._may_serve(free[at] >> SHIFT, size) else len(free)

    def _may_serve(self, nbytes: int, size: int) -> bool:
        if size < self._max_split:
            return nbytes < self._max_split
        return nbytes < size + self.settings.non_split_rounding

    # -- the driver --------------------------------------------------------------------------------------

    def _obtain(self, pool: Pool, size: int) -> int:
        """A fresh free block outside the pool's list, making room where there is none; FULL when that fails."""
        if self._born is not None:
            self._collect_garbage(self._born)
        block = self._allocate(pool, size)
        if block < 0 and self._max_split != NEVER and self._release_oversize(pool, size):
            block = self._allocate(pool, size)
        if block < 0:
            self.empty_cache()
            self.retried_at.append(self.clock)
            block = self._allocate(pool, size)
        return block

    def _allocate(self, pool: Pool, size: int) -> int:
        nbytes = self.settings.segment_size(size)
        if self.reserved + nbytes > min(self.capacity, self.limit):
            return FULL
        if self._descending:
            self._cursor -= nbytes + _GAP
            address = self._cursor
        else:
            address = self._cursor
            self._cursor += nbytes + _GAP
        self._starts[address] = nbytes
        self._ends[address + nbytes] = address
        self._segments[address] = (nbytes, pool)
        self._record(Action.SEGMENT_ALLOC, address, nbytes, pool)
        return nbytes << SHIFT | address

    def _release(self, address: int) -> None:
        """cudaFree of a segment that is one free block."""
        nbytes, pool = self._segments.pop(address)
        del self._starts[address], self._ends[address + nbytes]
        del pool.free[bisect_left(pool.free, nbytes << SHIFT | address)]
        self._record(Action.SEGMENT_FREE, address, nbytes, pool)

    def _record(self, action: Action, address: int, nbytes: int, pool: Pool) -> None:
        call = DriverCall(self.clock, action, address, nbytes, pool.stream, pool.small)
        self.reserved += call.change
        self.calls.append(call)

    def _is_segment(self, block: int) -> bool:
        segment = self._segments.get(block & ADDRESS)
        return segment is not None and segment[0] == block >> SHIFT

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """With max_split_size: one block that is large enough, or the largest ones until they are."""
        wanted = max(size, self._max_split)
        at = bisect_left(pool.free, wanted << SHIFT)
        if at < len(pool.free):
            if not self._is_segment(pool.free[at]):
                return False
            self._release(pool.free[at] & ADDRESS)
            return True
        released = 0
        for block in reversed(pool.free.copy()):
            if released >= wanted or block >> SHIFT < self._max_split:
                break
            if self._is_segment(block):
                released += block >> SHIFT
                self._release(block & ADDRESS)
        return released >= wanted

    def _collect_garbage(self, born: dict[int, int]) -> None:
        """Above the threshold, gives back unsplit large blocks of at least average age until below it."""
        target = self.reserved - int(self.settings.garbage_collection_threshold * self.limit)
        ages = {
            address: self._searches - born[address]
            for address, (nbytes, pool) in self._segments.items()
            if not pool.small and self._starts.get(address) == nbytes
        }
        reclaimed = 0
        while ages and reclaimed < target:
            average = sum(ages.values()) / len(ages)
            for address in [address for address, age in ages.items() if age >= average]:
                reclaimed += self._segments[address][0]
                self._release(address)
                del ages[address]
