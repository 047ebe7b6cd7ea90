"""Replays a run of allocations and frees through CUDA's caching allocator.

`simulate` takes a rank's stream at a micro batch, `replay` any sequence of events. Without a capacity the figures are
those of a device without limit; with one, cached memory is given back under pressure (`num_alloc_retries`), and the
run ends at the first request that cannot be met (`oom_at`).

A block on which a stream was recorded counts as freed at once and serves again later: at the event that the stream
names for a schedule (gpu_plan.planner.memory.schedule), or when the allocator waits for the device.
"""

import numpy as np

from gpu_plan.planner.memory.allocator.calls import listed
from gpu_plan.planner.memory.allocator.compiled import COMPILED, CompiledRun
from gpu_plan.planner.memory.allocator.expandable import ExpandableHeap
from gpu_plan.planner.memory.allocator.heap import ADDRESS, SHIFT, Heap, Pool
from gpu_plan.planner.memory.allocator.played import Played, Taken, device_limit
from gpu_plan.planner.memory.allocator.result import (
    AllocatorResult,
    Block,
    OutOfMemory,
    Segment,
)
from gpu_plan.planner.memory.allocator.settings import SMALL_LIMIT, AllocatorSettings, IntArray
from gpu_plan.planner.memory.schedule import Schedule
from gpu_plan.planner.memory.stream.rank import RankStream

DEFAULT_SETTINGS = AllocatorSettings()


class Runs:
    """A rank's whole stream (load and both iterations, in order) at a micro batch, run under several conditions."""

    def __init__(self, stream: RankStream, micro_batch: int, settings: AllocatorSettings = DEFAULT_SETTINGS) -> None:
        self._run = Run(
            stream.event_sign, stream.event_tensor, stream.requested(micro_batch), stream.cuda_stream, settings
        )

    def result(
        self,
        *,
        capacity: int | None = None,
        descending_addresses: bool = False,
        returns: IntArray | None = None,
    ) -> AllocatorResult:
        """Arguments as of `simulate`, `returns` as of `replay`."""
        return self._run.result(capacity, descending_addresses, returns)

    def taken(
        self,
        *,
        capacity: int | None = None,
        descending_addresses: bool = False,
        returns: IntArray | None = None,
    ) -> Taken:
        """What it takes from the device alone; arguments as of `result`."""
        return self._run.taken(capacity, descending_addresses, returns)

    def charged(self, returns: IntArray | None) -> tuple[Taken, IntArray]:
        """The same without a limit, and the bytes that each tensor is charged; 0 for those never allocated."""
        blocks = np.zeros(self._run.num_tensors, dtype=np.int64)
        return self._run.taken(None, False, returns, blocks), blocks


def simulate(
    stream: RankStream,
    micro_batch: int,
    *,
    capacity: int | None = None,
    settings: AllocatorSettings = DEFAULT_SETTINGS,
    descending_addresses: bool = False,
    schedule: Schedule = Schedule.WAITS,
) -> AllocatorResult:
    """Runs a rank's whole stream (load and both iterations, in order) at a micro batch.

    `capacity` is in bytes, what the device has left for the allocator. `descending_addresses`: whether the driver
    hands out lower and lower addresses, which decides between equal blocks; expandable segments have one order.
    `schedule`: how far the host is ahead of the device, which decides when blocks with recorded streams serve again.
    """
    runs = Runs(stream, micro_batch, settings)
    returns = stream.returns(schedule)
    return runs.result(capacity=capacity, descending_addresses=descending_addresses, returns=returns)


def replay(
    signs: IntArray,
    tensors: IntArray,
    sizes: IntArray,
    streams: IntArray | None = None,
    *,
    capacity: int | None = None,
    settings: AllocatorSettings = DEFAULT_SETTINGS,
    descending_addresses: bool = False,
    returns: IntArray | None = None,
    plain: bool = False,
) -> AllocatorResult:
    """Runs events: +1 allocates, -1 frees tensor `tensors[event]` of `sizes[tensor]` requested bytes.

    `returns[event]` is the event from which on the block that an event frees can be handed out again, the event itself
    or a later one; None: all at once. Shapes: signs, tensors and returns [events], sizes and streams [tensors].
    `plain` runs in Python what is compiled otherwise: the same, but for its time.
    Raises ValueError when a tensor is allocated twice or freed without being alive.
    """
    return Run(signs, tensors, sizes, streams, settings, plain).result(capacity, descending_addresses, returns)


class Run:
    """Events with all that does not depend on the device or the schedule."""

    def __init__(
        self,
        signs: IntArray,
        tensors: IntArray,
        sizes: IntArray,
        streams: IntArray | None,
        settings: AllocatorSettings,
        plain: bool = False,
    ) -> None:
        self._signs, self._tensors, self._sizes, self._streams = signs, tensors, sizes, streams
        self._settings = settings
        self._rounded = settings.round_sizes(sizes)
        self._compiled: CompiledRun | None = None
        if COMPILED and settings.bends_nothing and not plain:
            self._compiled = CompiledRun(signs, tensors, self._rounded, streams, settings)

    @property
    def num_events(self) -> int:
        """Of each run."""
        return len(self._signs)

    @property
    def num_tensors(self) -> int:
        """That they allocate and free."""
        return len(self._sizes)

    def result(self, capacity: int | None, descending_addresses: bool, returns: IntArray | None) -> AllocatorResult:
        """Runs them, and says what came of it."""
        played = self._played(capacity, descending_addresses, returns)
        handled = len(played.charged)
        signs, tensors, sizes = self._signs, self._tensors, self._sizes
        oom = self._out_of_memory(played, capacity) if handled < len(signs) else None
        requested = signs[:handled] * np.maximum(sizes, 0)[tensors[:handled]]
        return _result(played, tensors[:handled], requested, oom, returns)

    def taken(
        self, capacity: int | None, descending_addresses: bool, returns: IntArray | None, blocks: IntArray | None = None
    ) -> Taken:
        """What they take from the device alone; `blocks` [tensors] is told the bytes of each tensor's last block."""
        if self._compiled is not None:
            return self._compiled.taken(
                capacity=capacity, descending_addresses=descending_addresses, returns=returns, blocks=blocks
            )
        result = self.result(capacity, descending_addresses, returns)
        if blocks is not None:
            blocks[:] = result.block_bytes(len(blocks))
        return Taken(
            event=result.driver.event,
            change=result.driver.change,
            reserved_at_end=result.reserved_at_end,
            retried_at=result.retried_at,
            complete=result.oom_at is None,
        )

    def _played(self, capacity: int | None, descending_addresses: bool, returns: IntArray | None) -> Played:
        if self._compiled is not None:
            return self._compiled.played(capacity=capacity, descending_addresses=descending_addresses, returns=returns)
        return _run_plain(
            self._signs,
            self._tensors,
            self._rounded,
            self._streams,
            settings=self._settings,
            capacity=capacity,
            descending_addresses=descending_addresses,
            returns=returns,
        )

    def _out_of_memory(self, played: Played, capacity: int | None) -> OutOfMemory:
        """The request behind the last one that was handled."""
        handled = len(played.charged)
        tensor = int(self._tensors[handled])
        return OutOfMemory(
            event=handled,
            tensor=tensor,
            requested_bytes=int(self._sizes[tensor]),
            tried_bytes=self._settings.segment_size(int(self._rounded[tensor])),
            free_bytes=max(device_limit(self._settings, capacity) - played.reserved, 0),
            allocated_bytes=int(played.charged.sum()),
            reserved_bytes=played.reserved,
        )


def _run_plain(
    signs: IntArray,
    tensors: IntArray,
    rounded: IntArray,
    streams: IntArray | None,
    *,
    settings: AllocatorSettings,
    capacity: int | None,
    descending_addresses: bool,
    returns: IntArray | None,
) -> Played:
    """The run in plain Python, whatever the settings."""
    heap = (ExpandableHeap if settings.expandable_segments else Heap)(
        settings, capacity, descending_addresses=descending_addresses
    )
    pools = _pools(heap, rounded, streams)
    later = {} if returns is None else _later(returns)
    charged, addresses = _run(heap, signs.tolist(), tensors.tolist(), rounded.tolist(), pools, later)
    return Played(
        charged=np.asarray(charged, np.int64),
        addresses=np.asarray(addresses, np.int64),
        reserved=heap.reserved,
        calls=listed(heap.calls),
        retried_at=tuple(heap.retried_at),
        settled=np.asarray(heap.settled, np.int64).reshape(-1, 2),
    )


def _later(returns: IntArray) -> dict[int, int]:
    """Events that free what cannot be handed out at once, and the event from which on it can."""
    at = np.flatnonzero(returns > np.arange(len(returns)))
    return dict(zip(at.tolist(), returns[at].tolist(), strict=True))


def _pools(heap: Heap, rounded: IntArray, streams: IntArray | None) -> list[Pool]:
    """Each tensor's pool."""
    small = rounded <= SMALL_LIMIT
    codes = small.astype(np.int64) if streams is None else 2 * streams.astype(np.int64) + small
    distinct, inverse = np.unique(codes, return_inverse=True)
    pools = [heap.pool(int(code) // 2, bool(code % 2)) for code in distinct]
    return [pools[index] for index in inverse.tolist()]


def _run(
    heap: Heap, signs: list[int], tensors: list[int], rounded: list[int], pools: list[Pool], later: dict[int, int]
) -> tuple[list[int], list[int]]:
    """Bytes and address of each event's block, as far as the device bears it."""
    malloc, free, waiting = heap.malloc, heap.free, heap.waiting
    blocks = [0] * len(rounded)
    charged: list[int] = []
    addresses: list[int] = []
    charge, locate = charged.append, addresses.append
    for event, (sign, tensor) in enumerate(zip(signs, tensors, strict=True)):
        block = blocks[tensor]
        if sign > 0:
            if block:
                raise ValueError(f"event {event} allocates tensor {tensor}, which is alive")
            size = rounded[tensor]
            if size:
                heap.clock = event
                if waiting and waiting[0][0] <= event:
                    heap.settle(event)
                block = malloc(pools[tensor], size)
                if block < 0:
                    break
                blocks[tensor] = block
                charge(block >> SHIFT)
                locate(block & ADDRESS)
                continue
        elif block:
            if event in later:
                heap.free_later(pools[tensor], block, later[event])
            else:
                free(pools[tensor], block)
            blocks[tensor] = 0
            charge(-(block >> SHIFT))
            locate(block & ADDRESS)
            continue
        elif rounded[tensor]:
            raise ValueError(f"event {event} frees tensor {tensor}, which is not alive")
        charge(0)
        locate(-1)
    return charged, addresses


def _result(
    played: Played, tensors: IntArray, requested: IntArray, oom: OutOfMemory | None, returns: IntArray | None
) -> AllocatorResult:
    calls, charged = played.calls, played.charged
    allocated = np.cumsum(charged)
    peak_at = _first_peak(allocated)
    active = allocated if returns is None else allocated + _waiting(played, returns)
    # Call by call, not event by event: memory can be taken and given back within one request.
    reserved = np.cumsum(calls.change)
    peak_call = _first_peak(reserved)
    peak_reserved_at = int(calls.event[peak_call]) if len(reserved) else -1
    return AllocatorResult(
        peak_allocated_bytes=_at(allocated, peak_at),
        peak_allocated_at=peak_at,
        peak_active_bytes=int(active.max(initial=0)),
        peak_requested_bytes=int(np.cumsum(requested).max(initial=0)),
        peak_reserved_bytes=_at(reserved, peak_call),
        peak_reserved_at=peak_reserved_at,
        reserved_at_end=played.reserved,
        num_alloc_retries=len(played.retried_at),
        retried_at=played.retried_at,
        oom_at=oom,
        fragmentation_bytes=_at(reserved, peak_call) - _at(allocated, min(peak_reserved_at, len(charged) - 1)),
        tensors=tensors,
        charged=charged,
        addresses=played.addresses,
        driver=calls,
    )


def _waiting(played: Played, returns: IntArray) -> IntArray:
    """Bytes after each event that were freed and have not come back."""
    charged = played.charged
    at = np.arange(len(charged))
    change = np.where((returns[: len(charged)] > at) & (charged < 0), -charged, 0)
    if len(change):
        np.subtract.at(change, np.minimum(played.settled[:, 0], len(change) - 1), played.settled[:, 1])
    waiting: IntArray = np.cumsum(change)
    return waiting


def _first_peak(values: IntArray) -> int:
    return int(np.argmax(values)) if len(values) else -1


def _at(values: IntArray, position: int) -> int:
    return int(values[position]) if len(values) else 0


__all__ = [
    "AllocatorResult",
    "AllocatorSettings",
    "Block",
    "OutOfMemory",
    "Runs",
    "Segment",
    "Taken",
    "replay",
    "simulate",
]
