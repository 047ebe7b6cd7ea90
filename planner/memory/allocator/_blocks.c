/* The heap of heap.py and expandable.py, block by block: the same decisions, some fifty times faster.
 *
 * Those are what this must equal, event by event (tests/unit/memory/test_compiled_replay.py), and what runs where this was
 * not built. Only settings that do not bend the best fit further are known here: no max_split_size, no garbage collection.
 *
 * A pool is the sorted free blocks (size, then address), on shelves of a few dozen: of thousands in one array most of a
 * run would be moving them aside. Blocks of one segment are a list, in order of address. With pages a pool is one address
 * range: its blocks are one list, and what is not mapped is a sorted array of holes.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GAP ((int64_t)2 << 20)
#define TOP ((int64_t)1 << 51)
#define NOTHING ((int32_t)-1)
#define SPAN ((int64_t)1 << 42) /* bytes of a pool's address range, before rounding to pages */
#define ON_SHELF 64             /* free blocks on one shelf at most */
#define NEAR 8                  /* places that are looked at one by one */

typedef struct {
    int32_t shelf, item;
} Place;

typedef struct {
    int64_t address, size;
    int32_t before, after; /* neighbours in the segment */
    int32_t pool;
    int32_t free;
    int32_t segment;
    Place at; /* on the shelves when it was put there: others come and go, so that it lies near by */
} Block;

typedef struct {
    int64_t address, size;
    int32_t first; /* its first block; NOTHING once given back */
} Segment;

typedef struct {
    int64_t size, address; /* of the block, beside each other: a search reads nothing else */
    int32_t block;
} Free;

typedef struct {
    int64_t size, address; /* of its last block: a search for the shelf reads nothing else */
    Free *free;
    int32_t count; /* never 0 */
} Shelf;

typedef struct {
    int64_t address, size;
} Hole;

typedef struct {
    Shelf *shelves;
    int32_t num_shelves, room_shelves;
    int64_t least_rest;
    int64_t page; /* 0: whole segments */
    Hole *holes;
    int32_t num_holes, room_holes;
    int32_t head, last; /* of the range's blocks */
} Pool;

typedef struct {
    int32_t event, block;
} Waiting;

/* What is the same of all tensors of one size in one pool. */
typedef struct {
    int64_t size, segment; /* bytes of the block, and of the segment that is taken for it where none is cached */
    int32_t pool;
    Place at; /* where a block for it was found last */
} Class;

typedef struct {
    int64_t event, change, address, pool;
} Call;

typedef struct {
    Block *blocks;
    int32_t num_blocks, room_blocks, spare; /* spare: list of unused blocks through `after` */
    Segment *segments;
    int32_t num_segments, room_segments;
    Pool *pools;
    int32_t num_pools;
    Waiting *waiting;
    int32_t num_waiting, room_waiting;
    Call *calls;
    int64_t num_calls, room_calls;
    int64_t *settled; /* pairs: clock, bytes */
    int64_t num_settled, room_settled;
    int64_t *retried;
    int64_t num_retried, room_retried;
    int64_t reserved, limit, capacity, cursor, clock; /* limit: of the process; with whole segments the less of both */
    int descending, broken; /* broken: out of memory ourselves */
} Heap;

static void *grown(Heap *heap, void *array, int64_t *room, int64_t count, size_t item) {
    if (count < *room) return array;
    int64_t wanted = *room ? 2 * *room : 256;
    void *made = realloc(array, (size_t)wanted * item);
    if (made == NULL) {
        heap->broken = 1;
        return array;
    }
    *room = wanted;
    return made;
}

static void *grown32(Heap *heap, void *array, int32_t *room, int32_t count, size_t item) {
    int64_t wide = *room;
    void *made = grown(heap, array, &wide, count, item);
    *room = (int32_t)wide;
    return made;
}

static int precedes(int64_t one_size, int64_t one_address, int64_t size, int64_t address) {
    return one_size < size || (one_size == size && one_address < address);
}

/* Of the first free block that is not smaller than (size, address); behind the last one where all are smaller. */
static Place place(const Pool *pool, int64_t size, int64_t address) {
    int32_t low = 0, high = pool->num_shelves - 1;
    if (high < 0) return (Place){0, 0};
    while (low < high) {
        int32_t middle = (low + high) / 2;
        const Shelf *shelf = &pool->shelves[middle];
        if (precedes(shelf->size, shelf->address, size, address)) low = middle + 1;
        else high = middle;
    }
    const Shelf *shelf = &pool->shelves[low];
    int32_t first = 0, last = shelf->count;
    while (first < last) {
        int32_t middle = (first + last) / 2;
        const Free *free = &shelf->free[middle];
        if (precedes(free->size, free->address, size, address)) first = middle + 1;
        else last = middle;
    }
    return (Place){low, first};
}

/* The same, looked for from a place on where it is likely: sizes come again and again, and little changes meanwhile. Of a
 * search by halves most of the time goes to guessing wrong which half it is. */
static Place near(const Pool *pool, Place at, int64_t size, int64_t address) {
    if (at.shelf >= pool->num_shelves) return place(pool, size, address);
    const Shelf *shelf = &pool->shelves[at.shelf];
    if (at.shelf + 1 < pool->num_shelves && precedes(shelf->size, shelf->address, size, address)) return place(pool, size, address);
    if (at.shelf && !precedes(shelf[-1].size, shelf[-1].address, size, address)) return place(pool, size, address);
    int32_t item = at.item < shelf->count ? at.item : shelf->count;
    const Free *free = shelf->free;
    int32_t least = item > NEAR ? item - NEAR : 0, most = item + NEAR < shelf->count ? item + NEAR : shelf->count;
    while (item < most && precedes(free[item].size, free[item].address, size, address)) item++;
    if (item == most && most < shelf->count) return place(pool, size, address);
    while (item > least && !precedes(free[item - 1].size, free[item - 1].address, size, address)) item--;
    return item == least && least ? place(pool, size, address) : (Place){at.shelf, item};
}

/* The free block at a place; NULL behind the last one. */
static const Free *free_at(const Pool *pool, Place at) {
    if (at.shelf >= pool->num_shelves || at.item >= pool->shelves[at.shelf].count) return NULL;
    return &pool->shelves[at.shelf].free[at.item];
}

static Place behind(const Pool *pool, Place at) {
    if (at.item + 1 < pool->shelves[at.shelf].count || at.shelf + 1 == pool->num_shelves) return (Place){at.shelf, at.item + 1};
    return (Place){at.shelf + 1, 0};
}

static void name(Shelf *shelf) {
    shelf->size = shelf->free[shelf->count - 1].size;
    shelf->address = shelf->free[shelf->count - 1].address;
}

static void removed(Pool *pool, Place at) {
    Shelf *shelf = &pool->shelves[at.shelf];
    if (--shelf->count) {
        memmove(shelf->free + at.item, shelf->free + at.item + 1, (size_t)(shelf->count - at.item) * sizeof(Free));
        if (at.item == shelf->count) name(shelf);
        return;
    }
    free(shelf->free);
    pool->num_shelves--;
    memmove(shelf, shelf + 1, (size_t)(pool->num_shelves - at.shelf) * sizeof(Shelf));
}

/* An empty shelf at a position, to be filled at once; NULL without memory. */
static Shelf *new_shelf(Heap *heap, Pool *pool, int32_t at) {
    pool->shelves = grown32(heap, pool->shelves, &pool->room_shelves, pool->num_shelves, sizeof(Shelf));
    Free *free = heap->broken ? NULL : malloc(ON_SHELF * sizeof(Free));
    if (free == NULL) {
        heap->broken = 1;
        return NULL;
    }
    Shelf *shelf = &pool->shelves[at];
    memmove(shelf + 1, shelf, (size_t)(pool->num_shelves - at) * sizeof(Shelf));
    pool->num_shelves++;
    shelf->free = free;
    shelf->count = 0;
    return shelf;
}

/* Where it then lies. */
static Place inserted(Heap *heap, Pool *pool, Place at, Free made) {
    Shelf *shelf = pool->num_shelves ? &pool->shelves[at.shelf] : new_shelf(heap, pool, 0);
    if (shelf == NULL) return at;
    if (shelf->count == ON_SHELF) {
        /* Half of a full shelf, the larger ones, goes to a new one. */
        Shelf *other = new_shelf(heap, pool, at.shelf + 1);
        if (other == NULL) return at;
        shelf = other - 1;
        other->count = ON_SHELF / 2;
        shelf->count = ON_SHELF - other->count;
        memcpy(other->free, shelf->free + shelf->count, (size_t)other->count * sizeof(Free));
        name(other);
        name(shelf);
        if (at.item > shelf->count) {
            at.item -= shelf->count;
            at.shelf++;
            shelf = other;
        }
    }
    memmove(shelf->free + at.item + 1, shelf->free + at.item, (size_t)(shelf->count - at.item) * sizeof(Free));
    shelf->free[at.item] = made;
    shelf->count++;
    name(shelf);
    return at;
}

static void put(Heap *heap, int32_t index) {
    Block *block = &heap->blocks[index];
    Pool *pool = &heap->pools[block->pool];
    block->at = inserted(heap, pool, near(pool, block->at, block->size, block->address), (Free){block->size, block->address, index});
    if (!heap->broken) block->free = 1;
}

static Place found(const Heap *heap, int32_t index) {
    const Block *block = &heap->blocks[index];
    return near(&heap->pools[block->pool], block->at, block->size, block->address);
}

static void take(Heap *heap, int32_t index) {
    removed(&heap->pools[heap->blocks[index].pool], found(heap, index));
    heap->blocks[index].free = 0;
}

/* The free block at `at` has become block `index`, of another size: on the same shelf only what lies between the two
 * places moves. */
static void changed(Heap *heap, Place at, int32_t index) {
    Block *block = &heap->blocks[index];
    Pool *pool = &heap->pools[block->pool];
    Free made = {block->size, block->address, index};
    Place to = near(pool, at, block->size, block->address);
    if (to.shelf == at.shelf) {
        Shelf *shelf = &pool->shelves[at.shelf];
        Free *free = shelf->free;
        if (to.item > at.item) {
            if (--to.item > at.item) memmove(free + at.item, free + at.item + 1, (size_t)(to.item - at.item) * sizeof(Free));
        } else if (to.item < at.item) memmove(free + to.item + 1, free + to.item, (size_t)(at.item - to.item) * sizeof(Free));
        free[to.item] = made;
        if (to.item + 1 == shelf->count || at.item + 1 == shelf->count) name(shelf);
        block->free = 1;
        block->at = to;
        return;
    }
    removed(pool, at);
    put(heap, index);
}

static int32_t new_block(Heap *heap) {
    if (heap->spare != NOTHING) {
        int32_t index = heap->spare;
        heap->spare = heap->blocks[index].after;
        return index;
    }
    heap->blocks = grown32(heap, heap->blocks, &heap->room_blocks, heap->num_blocks, sizeof(Block));
    return heap->broken ? NOTHING : heap->num_blocks++;
}

static void drop(Heap *heap, int32_t index) {
    heap->blocks[index].after = heap->spare;
    heap->spare = index;
}

static void record(Heap *heap, int64_t change, int64_t address, int64_t pool) {
    heap->calls = grown(heap, heap->calls, &heap->room_calls, heap->num_calls, sizeof(Call));
    if (heap->broken) return;
    Call *call = &heap->calls[heap->num_calls++];
    call->event = heap->clock;
    call->change = change;
    call->address = address;
    call->pool = pool;
    heap->reserved += change;
}

/* Out of its list of neighbours. */
static void unlinked(Heap *heap, int32_t index) {
    Block *block = &heap->blocks[index];
    Pool *pool = &heap->pools[block->pool];
    if (block->before != NOTHING) heap->blocks[block->before].after = block->after;
    else if (pool->page) pool->head = block->after;
    if (block->after != NOTHING) heap->blocks[block->after].before = block->before;
    else if (pool->page) pool->last = block->before;
    drop(heap, index);
}

/* Behind a block of its list; behind none, at the head of a pool's range. */
static void linked(Heap *heap, int32_t index, int32_t before) {
    Block *block = &heap->blocks[index];
    Pool *pool = &heap->pools[block->pool];
    block->before = before;
    block->after = before == NOTHING ? pool->head : heap->blocks[before].after;
    if (before != NOTHING) heap->blocks[before].after = index;
    else pool->head = index;
    if (block->after != NOTHING) heap->blocks[block->after].before = index;
    else if (pool->page) pool->last = index;
}

/* Whether a block is followed at once by a free one. */
static int meets(const Heap *heap, int32_t one, int32_t other) {
    if (one == NOTHING || other == NOTHING) return 0;
    return heap->blocks[one].address + heap->blocks[one].size == heap->blocks[other].address;
}

/* free_block: merges with free neighbours. */
static void give(Heap *heap, int32_t index) {
    int32_t after = heap->blocks[index].after, before = heap->blocks[index].before;
    Place at = {0, 0}; /* of the neighbour that it becomes one with */
    int joins = 0;
    if (!meets(heap, before, index) || !heap->blocks[before].free) before = NOTHING;
    if (meets(heap, index, after) && heap->blocks[after].free) {
        if (before == NOTHING) {
            at = found(heap, after);
            joins = 1;
            heap->blocks[after].free = 0;
        } else take(heap, after);
        heap->blocks[index].size += heap->blocks[after].size;
        unlinked(heap, after);
    }
    if (before != NOTHING) {
        at = found(heap, before);
        joins = 1;
        heap->blocks[before].size += heap->blocks[index].size;
        unlinked(heap, index);
        index = before;
    }
    if (joins) changed(heap, at, index);
    else put(heap, index);
}

static void wait_for(Heap *heap, int32_t block, int32_t event) {
    heap->waiting = grown32(heap, heap->waiting, &heap->room_waiting, heap->num_waiting, sizeof(Waiting));
    if (heap->broken) return;
    int32_t at = heap->num_waiting++;
    while (at > 0 && heap->waiting[(at - 1) / 2].event > event) {
        heap->waiting[at] = heap->waiting[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->waiting[at].event = event;
    heap->waiting[at].block = block;
}

static int32_t next_waiting(Heap *heap) {
    int32_t block = heap->waiting[0].block, at = 0, count = --heap->num_waiting;
    Waiting last = heap->waiting[count];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && heap->waiting[child + 1].event < heap->waiting[child].event) child++;
        if (heap->waiting[child].event >= last.event) break;
        heap->waiting[at] = heap->waiting[child];
        at = child;
    }
    heap->waiting[at] = last;
    return block;
}

/* process_events */
static void settle(Heap *heap, int64_t event) {
    while (heap->num_waiting && heap->waiting[0].event <= event && !heap->broken) {
        int32_t block = next_waiting(heap);
        heap->settled = grown(heap, heap->settled, &heap->room_settled, heap->num_settled + 1, sizeof(int64_t));
        if (heap->broken) return;
        heap->settled[heap->num_settled++] = heap->clock;
        heap->settled[heap->num_settled++] = heap->blocks[block].size;
        give(heap, block);
    }
}

static void new_hole(Heap *heap, Pool *pool, int32_t at, int64_t address, int64_t size) {
    pool->holes = grown32(heap, pool->holes, &pool->room_holes, pool->num_holes, sizeof(Hole));
    if (heap->broken) return;
    memmove(pool->holes + at + 1, pool->holes + at, (size_t)(pool->num_holes - at) * sizeof(Hole));
    pool->holes[at] = (Hole){address, size};
    pool->num_holes++;
}

static void no_hole(Pool *pool, int32_t at) {
    pool->num_holes--;
    memmove(pool->holes + at, pool->holes + at + 1, (size_t)(pool->num_holes - at) * sizeof(Hole));
}

/* Position of the first hole from an address on. */
static int32_t hole_from(const Pool *pool, int64_t address) {
    int32_t low = 0, high = pool->num_holes;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (pool->holes[middle].address < address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int64_t hole_at(const Pool *pool, int64_t address) {
    int32_t at = hole_from(pool, address);
    return at < pool->num_holes && pool->holes[at].address == address ? pool->holes[at].size : 0;
}

/* unmap_block: one hole with those that it meets. */
static void unmap(Heap *heap, Pool *pool, int64_t start, int64_t end) {
    int32_t at = hole_from(pool, start);
    if (at < pool->num_holes && pool->holes[at].address == end) {
        end += pool->holes[at].size;
        no_hole(pool, at);
    }
    if (at > 0 && pool->holes[at - 1].address + pool->holes[at - 1].size == start) pool->holes[at - 1].size = end - pool->holes[at - 1].address;
    else new_hole(heap, pool, at, start, end - start);
}

/* Every whole page inside a free block of one range. */
static void unmap_pages(Heap *heap, int32_t pool_index) {
    Pool *pool = &heap->pools[pool_index];
    int32_t count = 0;
    Free *copy = malloc(((size_t)pool->num_shelves + 1) * ON_SHELF * sizeof(Free));
    if (copy == NULL) {
        heap->broken = 1;
        return;
    }
    for (int32_t shelf = 0; shelf < pool->num_shelves; count += pool->shelves[shelf++].count)
        memcpy(copy + count, pool->shelves[shelf].free, (size_t)pool->shelves[shelf].count * sizeof(Free));
    for (int32_t at = 0; at < count && !heap->broken; at++) {
        int64_t address = copy[at].address, end = address + copy[at].size;
        int64_t first = (address + pool->page - 1) / pool->page * pool->page, last = end / pool->page * pool->page;
        int32_t index = copy[at].block;
        if (first >= last) continue;
        take(heap, index);
        if (end > last) {
            int32_t rest = new_block(heap);
            if (rest == NOTHING) break;
            heap->blocks[rest] = (Block){last, end - last, NOTHING, NOTHING, pool_index, 0, NOTHING, {0, 0}};
            linked(heap, rest, index);
            put(heap, rest);
        }
        if (first > address) {
            heap->blocks[index].size = first - address;
            put(heap, index);
        } else unlinked(heap, index);
        record(heap, first - last, first, pool_index);
        unmap(heap, pool, first, last);
    }
    free(copy);
}

/* release_cached_blocks */
static void empty_cache(Heap *heap) {
    settle(heap, INT64_MAX);
    for (int32_t pool = 0; pool < heap->num_pools && !heap->broken; pool++)
        if (heap->pools[pool].page) unmap_pages(heap, pool);
    for (int32_t at = 0; at < heap->num_segments && !heap->broken; at++) {
        Segment *segment = &heap->segments[at];
        if (segment->first == NOTHING) continue;
        int32_t first = segment->first;
        if (!heap->blocks[first].free || heap->blocks[first].size != segment->size) continue;
        take(heap, first);
        record(heap, -segment->size, segment->address, heap->blocks[first].pool);
        drop(heap, first);
        segment->first = NOTHING;
    }
}

/* The last block of a range that does not begin above an address. */
static int32_t below(const Heap *heap, const Pool *pool, int64_t address) {
    int32_t index = pool->last;
    while (index != NOTHING && heap->blocks[index].address > address) index = heap->blocks[index].before;
    return index;
}

/* Whether free blocks and holes from an address on hold a size together; `index` is the last block up to there. */
static int has_room(const Heap *heap, const Pool *pool, int32_t index, int64_t address, int64_t size) {
    int64_t at = address;
    while (at - address < size) {
        int32_t next = index == NOTHING ? pool->head : heap->blocks[index].after;
        int64_t room = 0;
        if (index != NOTHING && heap->blocks[index].address == at) {
            if (heap->blocks[index].free) room = heap->blocks[index].size;
        } else if (next != NOTHING && heap->blocks[next].address == at) {
            index = next;
            continue;
        } else room = hole_at(pool, at);
        if (!room) return 0;
        at += room;
    }
    return 1;
}

/* map_block, page by page as far as holes lie between free blocks. */
static int32_t map_from(Heap *heap, int32_t pool_index, int32_t index, int64_t address, int64_t size) {
    Pool *pool = &heap->pools[pool_index];
    if (index != NOTHING && heap->blocks[index].address == address) take(heap, index);
    else {
        int32_t made = new_block(heap);
        if (made == NOTHING) return NOTHING;
        heap->blocks[made] = (Block){address, 0, NOTHING, NOTHING, pool_index, 0, NOTHING, {0, 0}};
        linked(heap, made, index);
        index = made;
    }
    while (heap->blocks[index].size < size) {
        int64_t have = heap->blocks[index].size, end = address + have;
        int32_t at = hole_from(pool, end);
        int64_t hole = pool->holes[at].size, grow = (size - have + pool->page - 1) / pool->page * pool->page;
        if (grow > hole) grow = hole;
        if (heap->reserved + grow > heap->capacity) {
            /* What was mapped so far stays, as a free block. */
            if (have) put(heap, index);
            else unlinked(heap, index);
            return NOTHING;
        }
        if (grow < hole) pool->holes[at] = (Hole){end + grow, hole - grow};
        else no_hole(pool, at);
        record(heap, grow, end, pool_index);
        heap->blocks[index].size = have + grow;
        int32_t after = heap->blocks[index].after;
        if (meets(heap, index, after) && heap->blocks[after].free) {
            take(heap, after);
            heap->blocks[index].size += heap->blocks[after].size;
            unlinked(heap, after);
        }
    }
    return index;
}

/* try_allocate_expandable_block: at the lowest address where free and unmapped ranges together hold the size. */
static int32_t mapped(Heap *heap, int32_t pool_index, int64_t size, int64_t nbytes) {
    const Pool *pool = &heap->pools[pool_index];
    if (heap->reserved + nbytes > heap->limit) return NOTHING;
    for (int32_t at = 0; at < pool->num_holes; at++) {
        int64_t address = pool->holes[at].address;
        int32_t index = below(heap, pool, address - 1);
        if (index != NOTHING && heap->blocks[index].free && heap->blocks[index].address + heap->blocks[index].size == address)
            address = heap->blocks[index].address;
        if (has_room(heap, pool, index, address, size)) return map_from(heap, pool_index, index, address, size);
    }
    return NOTHING;
}

/* alloc_block of a pool with pages, making room where there is none. */
static int32_t expanded(Heap *heap, int32_t pool, int64_t size, int64_t nbytes) {
    int32_t index = mapped(heap, pool, size, nbytes);
    if (index != NOTHING || heap->broken) return index;
    empty_cache(heap);
    heap->retried = grown(heap, heap->retried, &heap->room_retried, heap->num_retried, sizeof(int64_t));
    if (heap->broken) return NOTHING;
    heap->retried[heap->num_retried++] = heap->clock;
    return mapped(heap, pool, size, nbytes);
}

/* Bytes to which a free block can grow. */
static int64_t reach(const Pool *pool, const Free *free) {
    return free->size + hole_at(pool, free->address + free->size);
}

static int32_t obtain(Heap *heap, int32_t pool, int64_t nbytes) {
    for (int tried = 0;; tried++) {
        if (heap->reserved + nbytes <= heap->limit) break;
        if (tried) return NOTHING;
        empty_cache(heap);
        heap->retried = grown(heap, heap->retried, &heap->room_retried, heap->num_retried, sizeof(int64_t));
        if (heap->broken) return NOTHING;
        heap->retried[heap->num_retried++] = heap->clock;
    }
    heap->segments = grown32(heap, heap->segments, &heap->room_segments, heap->num_segments, sizeof(Segment));
    int32_t index = heap->broken ? NOTHING : new_block(heap);
    if (index == NOTHING) return NOTHING;
    int64_t address;
    if (heap->descending) address = heap->cursor -= nbytes + GAP;
    else {
        address = heap->cursor;
        heap->cursor += nbytes + GAP;
    }
    Segment *segment = &heap->segments[heap->num_segments];
    segment->address = address;
    segment->size = nbytes;
    segment->first = index;
    Block *block = &heap->blocks[index];
    *block = (Block){address, nbytes, NOTHING, NOTHING, pool, 0, heap->num_segments++, {0, 0}};
    record(heap, nbytes, address, pool);
    return index;
}

static int32_t take_for(Heap *heap, Class *class) {
    int32_t pool_index = class->pool;
    int64_t size = class->size;
    Pool *pool = &heap->pools[pool_index];
    Place at = class->at = near(pool, class->at, size, INT64_MIN);
    const Free *best = free_at(pool, at);
    while (pool->page && best != NULL) {
        const Free *next = free_at(pool, behind(pool, at));
        if (next == NULL || reach(pool, next) >= reach(pool, best)) break;
        at = behind(pool, at);
        best = next;
    }
    int cached = best != NULL;
    int32_t index;
    if (cached) index = best->block;
    else {
        index = pool->page ? expanded(heap, pool_index, size, class->segment) : obtain(heap, pool_index, class->segment);
        if (index == NOTHING) return NOTHING;
    }
    int64_t rest = heap->blocks[index].size - size;
    heap->blocks[index].free = 0;
    if (rest < pool->least_rest) {
        if (cached) removed(pool, at);
        return index;
    }
    int32_t cut = new_block(heap);
    if (cut == NOTHING) return NOTHING;
    Block *block = &heap->blocks[index];
    heap->blocks[cut] = (Block){block->address + size, rest, NOTHING, NOTHING, pool_index, 0, block->segment, {0, 0}};
    block->size = size;
    linked(heap, cut, index);
    if (cached) changed(heap, at, cut);
    else put(heap, cut);
    return index;
}

typedef struct {
    const int8_t *signs;
    const int32_t *tensors, *class_of, *returns;
    int64_t *charged, *addresses; /* of events; NULL: not told */
    int64_t *blocks;              /* of tensors: bytes of the last one; NULL: not told */
    int64_t events, num_tensors, num_classes;
} Run;

/* Nobody asks where only the most is wanted. */
static void tell(const Run *run, int64_t event, int64_t charged, int64_t address) {
    if (run->charged == NULL) return;
    run->charged[event] = charged;
    run->addresses[event] = address;
}

/* Events handled; `wrong` is set to 1 where a tensor is allocated twice, 2 where it is freed without being alive. */
static int64_t play(Heap *heap, const Run *run, Class *classes, int *wrong) {
    int32_t *held = malloc((size_t)(run->num_tensors + 1) * sizeof(int32_t));
    if (held == NULL) {
        heap->broken = 1;
        return 0;
    }
    memset(held, 0xFF, (size_t)(run->num_tensors + 1) * sizeof(int32_t));
    int64_t event = 0;
    for (; event < run->events && !heap->broken; event++) {
        int32_t tensor = run->tensors[event];
        if (tensor < 0 || tensor >= run->num_tensors || run->class_of[tensor] < 0 || run->class_of[tensor] >= run->num_classes) {
            *wrong = 3;
            break;
        }
        int32_t block = held[tensor];
        Class *class = &classes[run->class_of[tensor]];
        tell(run, event, 0, -1);
        if (run->signs[event] > 0) {
            if (block != NOTHING) {
                *wrong = 1;
                break;
            }
            if (!class->size) continue;
            heap->clock = event;
            if (heap->num_waiting && heap->waiting[0].event <= event) settle(heap, event);
            block = take_for(heap, class);
            if (block == NOTHING) break;
            held[tensor] = block;
            tell(run, event, heap->blocks[block].size, heap->blocks[block].address);
            if (run->blocks != NULL) run->blocks[tensor] = heap->blocks[block].size;
        } else if (block != NOTHING) {
            tell(run, event, -heap->blocks[block].size, heap->blocks[block].address);
            if (run->returns != NULL && run->returns[event] > event) wait_for(heap, block, run->returns[event]);
            else give(heap, block);
            held[tensor] = NOTHING;
        } else if (class->size) {
            *wrong = 2;
            break;
        }
    }
    free(held);
    return event;
}

static PyObject *as_bytes(const void *array, int64_t nbytes) {
    return PyBytes_FromStringAndSize((const char *)array, (Py_ssize_t)nbytes);
}

static void dismantle(Heap *heap) {
    for (int32_t pool = 0; heap->pools != NULL && pool < heap->num_pools; pool++) {
        for (int32_t shelf = 0; shelf < heap->pools[pool].num_shelves; shelf++) free(heap->pools[pool].shelves[shelf].free);
        free(heap->pools[pool].shelves);
        free(heap->pools[pool].holes);
    }
    free(heap->pools);
    free(heap->blocks);
    free(heap->segments);
    free(heap->waiting);
    free(heap->calls);
    free(heap->settled);
    free(heap->retried);
}

/* The address range of each pool, as large as no device. */
static void begin_ranges(Heap *heap, const int64_t *pages) {
    for (int32_t at = 0; at < heap->num_pools && !heap->broken; at++) {
        Pool *pool = &heap->pools[at];
        pool->page = pages[at];
        pool->head = pool->last = NOTHING;
        if (!pool->page) continue;
        int64_t span = (SPAN + pool->page - 1) / pool->page * pool->page;
        int64_t base = (at * 2 * SPAN + pool->page - 1) / pool->page * pool->page;
        new_hole(heap, pool, 0, base, span);
    }
}

/* Which tensors ask for the same: `of` each its class, `firsts` a tensor of each class; how many, -1 without memory. */
static int32_t classified(const int64_t *sizes, const int64_t *streams, int64_t count, int32_t *of, int32_t *firsts) {
    uint64_t room = 64;
    while (room < 2 * (uint64_t)count) room *= 2;
    int32_t *slots = malloc((size_t)room * sizeof(int32_t)), known = 0;
    if (slots == NULL) return -1;
    memset(slots, 0xFF, (size_t)room * sizeof(int32_t));
    for (int64_t tensor = 0; tensor < count; tensor++) {
        int64_t size = sizes[tensor], stream = streams == NULL ? 0 : streams[tensor];
        uint64_t slot = (((uint64_t)size + (uint64_t)stream) * 0x9E3779B97F4A7C15u) >> 20 & (room - 1);
        while (slots[slot] != NOTHING) {
            int32_t first = firsts[slots[slot]];
            if (sizes[first] == size && (streams == NULL || streams[first] == stream)) break;
            slot = (slot + 1) & (room - 1);
        }
        if (slots[slot] == NOTHING) {
            firsts[known] = (int32_t)tensor;
            slots[slot] = known++;
        }
        of[tensor] = slots[slot];
    }
    free(slots);
    return known;
}

/* Arrays of a call as they lie; 0 with an error set. */
static int opened(PyObject **objects, Py_buffer *views, int count, int first_output) {
    for (int at = 0; at < count; at++) views[at].obj = NULL;
    for (int at = 0; at < count; at++) {
        views[at].buf = NULL;
        views[at].len = 0;
        if (objects[at] == Py_None) continue; /* no returns, or nothing told */
        if (PyObject_GetBuffer(objects[at], &views[at], at < first_output ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0) return 0;
    }
    return 1;
}

static void closed(Py_buffer *views, int count) {
    for (int at = 0; at < count; at++)
        if (views[at].obj != NULL) PyBuffer_Release(&views[at]);
}

/* Sizes and streams of tensors (None: one stream), and where the class of each goes; gives a tensor of each class. */
static PyObject *classes(PyObject *self, PyObject *args) {
    PyObject *given[3], *answer = NULL;
    Py_buffer views[3];
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &given[0], &given[1], &given[2])) return NULL;
    if (opened(given, views, 3, 2)) {
        int64_t count = views[0].len / 8;
        if ((given[1] != Py_None && views[1].len != views[0].len) || views[2].len != 4 * count || count > INT32_MAX / 2)
            PyErr_SetString(PyExc_ValueError, "arrays of a run differ in length");
        else {
            int32_t *firsts = malloc((size_t)(count + 1) * sizeof(int32_t)), known = -1;
            if (firsts != NULL) known = classified(views[0].buf, views[1].buf, count, views[2].buf, firsts);
            if (known < 0) PyErr_NoMemory();
            else answer = PyBytes_FromStringAndSize((const char *)firsts, (Py_ssize_t)known * 4);
            free(firsts);
        }
    }
    closed(views, 3);
    return answer;
}

/* signs, tensors, class of each tensor; size, segment and pool of each class; least rests and pages of pools; returns */
enum { SIGNS, TENSORS, OF, SIZES, SEGMENTS, POOLS, LEAST, PAGES, RETURNS, CHARGED, ADDRESSES, BLOCKS, ARRAYS };
static const Py_ssize_t widths[ARRAYS] = {1, 4, 4, 8, 8, 8, 8, 8, 4, 8, 8, 8};

static PyObject *replay(PyObject *self, PyObject *args) {
    PyObject *given[ARRAYS], *answer = NULL;
    Py_buffer views[ARRAYS];
    int64_t lengths[ARRAYS];
    long long limit, capacity;
    int descending;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOLLp", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5],
                          &given[6], &given[7], &given[8], &given[9], &given[10], &given[11], &limit, &capacity, &descending))
        return NULL;
    Class *table = NULL;
    Heap heap;
    memset(&heap, 0, sizeof heap);
    if (!opened(given, views, ARRAYS, CHARGED)) goto done;
    for (int at = 0; at < ARRAYS; at++) lengths[at] = views[at].len / widths[at];
    Run run = {views[SIGNS].buf, views[TENSORS].buf, views[OF].buf, views[RETURNS].buf, views[CHARGED].buf,
               views[ADDRESSES].buf, views[BLOCKS].buf, lengths[SIGNS], lengths[OF], lengths[SIZES]};
    int told = run.charged != NULL && run.addresses != NULL, silent = run.charged == NULL && run.addresses == NULL;
    if (lengths[TENSORS] != run.events || run.events > INT32_MAX || run.num_tensors > INT32_MAX ||
        !(silent || (told && lengths[CHARGED] == run.events && lengths[ADDRESSES] == run.events)) ||
        (run.returns != NULL && lengths[RETURNS] != run.events) || (run.blocks != NULL && lengths[BLOCKS] != run.num_tensors) ||
        lengths[SEGMENTS] != run.num_classes || lengths[POOLS] != run.num_classes || lengths[PAGES] != lengths[LEAST]) {
        PyErr_SetString(PyExc_ValueError, "arrays of a run differ in length");
        goto done;
    }
    const int64_t *sizes = views[SIZES].buf, *segments = views[SEGMENTS].buf, *pools = views[POOLS].buf;
    table = malloc((size_t)(run.num_classes + 1) * sizeof(Class));
    heap.broken = table == NULL;
    for (int64_t at = 0; !heap.broken && at < run.num_classes; at++) {
        if (pools[at] < 0 || pools[at] >= lengths[LEAST]) {
            PyErr_SetString(PyExc_ValueError, "a tensor or its pool is out of range");
            goto done;
        }
        table[at] = (Class){sizes[at], segments[at], (int32_t)pools[at], {0, 0}};
    }
    heap.limit = limit;
    heap.capacity = capacity;
    heap.descending = descending;
    heap.cursor = descending ? TOP : GAP;
    heap.spare = NOTHING;
    heap.num_pools = (int32_t)lengths[LEAST];
    heap.pools = calloc((size_t)heap.num_pools + 1, sizeof(Pool));
    heap.broken |= heap.pools == NULL;
    for (int32_t pool = 0; !heap.broken && pool < heap.num_pools; pool++)
        heap.pools[pool].least_rest = ((const int64_t *)views[LEAST].buf)[pool];
    if (!heap.broken) begin_ranges(&heap, views[PAGES].buf);
    int wrong = 0;
    int64_t handled = 0;
    Py_BEGIN_ALLOW_THREADS
    if (!heap.broken) handled = play(&heap, &run, table, &wrong);
    Py_END_ALLOW_THREADS
    if (heap.broken) PyErr_NoMemory();
    else if (wrong == 3) PyErr_SetString(PyExc_ValueError, "a tensor or its pool is out of range");
    else if (wrong)
        PyErr_Format(PyExc_ValueError, "event %lld %s tensor %lld, which is %s", (long long)handled,
                     wrong == 1 ? "allocates" : "frees", (long long)run.tensors[handled],
                     wrong == 1 ? "alive" : "not alive");
    else {
        PyObject *calls = as_bytes(heap.calls, heap.num_calls * (int64_t)sizeof(Call));
        PyObject *retried = as_bytes(heap.retried, heap.num_retried * (int64_t)sizeof(int64_t));
        PyObject *settled = as_bytes(heap.settled, heap.num_settled * (int64_t)sizeof(int64_t));
        if (calls != NULL && retried != NULL && settled != NULL)
            answer = Py_BuildValue("LLOOO", (long long)handled, (long long)heap.reserved, calls, retried, settled);
        Py_XDECREF(calls);
        Py_XDECREF(retried);
        Py_XDECREF(settled);
    }
done:
    dismantle(&heap);
    free(table);
    closed(views, ARRAYS);
    return answer;
}

static PyMethodDef methods[] = {
    {"classes", classes, METH_VARARGS, "Which tensors ask for the same; see compiled.py."},
    {"replay", replay, METH_VARARGS, "One run through the plain heap; see compiled.py."},
    {NULL, NULL, 0, NULL},
};

/* What compiled.py gives and takes; another number than its own is a build of other source. */
static int told(PyObject *module) { return PyModule_AddIntConstant(module, "INTERFACE", 4); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, told}, {0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_blocks", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__blocks(void) { return PyModuleDef_Init(&module); }
