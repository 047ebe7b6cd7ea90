"""Expandable segments: one growing address range per stream and pool, backed page by page.

Mirrors the expandable paths of pytorch c10/cuda/CUDACachingAllocator.cpp: get_free_block, find_expandable_block,
try_allocate_expandable_block, map_block, unmap_block. One difference: the address range of a pool is larger than any
device, so that a pool never needs a second one (torch reserves 9/8 of the device's memory).
"""

from bisect import bisect_left, insort

from gpu_plan.planner.memory.allocator.heap import ADDRESS, FULL, NEVER, SHIFT, Action, Heap, Pool
from gpu_plan.planner.memory.allocator.settings import AllocatorSettings
from gpu_plan.planner.units import round_up

_SPAN = 1 << 42
"""Bytes of a pool's address range, before rounding to pages."""


class ExpandableHeap(Heap):
    """One device's memory, its segments mapped page by page."""

    def __init__(
        self, settings: AllocatorSettings, capacity: int | None, *, descending_addresses: bool = False
    ) -> None:
        super().__init__(settings, capacity, descending_addresses=descending_addresses)
        self._plain = False

    def _new_pool(self, stream: int, small: bool) -> Pool:
        pool = super()._new_pool(stream, small)
        span = round_up(_SPAN, self.settings.page(small))
        base = round_up(len(self.pools) * 2 * _SPAN, self.settings.page(small))
        pool.holes[base] = span
        return pool

    def empty_cache(self) -> None:
        """Waits for the device, then unmaps every whole page that lies inside a free block."""
        self.settle(NEVER)
        for pool in self.pools.values():
            page = self.settings.page(pool.small)
            for block in pool.free.copy():
                address = block & ADDRESS
                end = address + (block >> SHIFT)
                first, last = round_up(address, page), end // page * page
                if first >= last:
                    continue
                self._take(pool, address)
                self._give(pool, address, first - address)
                self._give(pool, last, end - last)
                self._record(Action.SEGMENT_UNMAP, first, last - first, pool)
                _add_hole(pool, first, last)

    def _choose(self, pool: Pool, size: int) -> int:
        """Best fit by the size to which a block can grow: the block at the end of the range is the last choice."""
        free = pool.free
        if not pool.small:
            self._searches += 1
        at = bisect_left(free, size << SHIFT)
        while at + 1 < len(free) and _reach(pool, free[at + 1]) < _reach(pool, free[at]):
            at += 1
        return at if at < len(free) and self._may_serve(free[at] >> SHIFT, size) else len(free)

    def _allocate(self, pool: Pool, size: int) -> int:
        """Maps what is missing at the lowest address where free and unmapped ranges together hold the size."""
        if self.reserved + self.settings.segment_size(size) > self.limit:
            return FULL
        for hole in sorted(pool.holes):
            address = self._ends.get(hole, hole)
            if self._has_room(pool, address, size):
                return self._map_from(pool, address, size)
        return FULL

    def _has_room(self, pool: Pool, address: int, size: int) -> bool:
        at = address
        while at - address < size:
            room = self._starts.get(at) or pool.holes.get(at)
            if room is None:
                return False
            at += room
        return True

    def _map_from(self, pool: Pool, address: int, size: int) -> int:
        page = self.settings.page(pool.small)
        have = self._take(pool, address) if address in self._starts else 0
        while have < size:
            end = address + have
            hole = pool.holes[end]
            grow = min(round_up(size - have, page), hole)
            if self.reserved + grow > self.capacity:
                # What was mapped so far stays, as a free block.
                self._give(pool, address, have)
                return FULL
            del pool.holes[end]
            if grow < hole:
                pool.holes[end + grow] = hole - grow
            self._record(Action.SEGMENT_MAP, end, grow, pool)
            have += grow
            if address + have in self._starts:
                have += self._take(pool, address + have)
        self._starts[address] = have
        self._ends[address + have] = address
        return have << SHIFT | address

    def _take(self, pool: Pool, address: int) -> int:
        size = self._starts.pop(address)
        del self._ends[address + size]
        del pool.free[bisect_left(pool.free, size << SHIFT | address)]
        return size

    def _give(self, pool: Pool, address: int, size: int) -> None:
        if size:
            self._starts[address] = size
            self._ends[address + size] = address
            insort(pool.free, size << SHIFT | address)


def _reach(pool: Pool, block: int) -> int:
    size = block >> SHIFT
    return size + pool.holes.get((block & ADDRESS) + size, 0)


def _add_hole(pool: Pool, start: int, end: int) -> None:
    holes = pool.holes
    end += holes.pop(end, 0)
    for other in [other for other, size in holes.items() if other + size == start]:
        del holes[other]
        start = other
    holes[start] = end - start
