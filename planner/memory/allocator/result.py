"""What a replayed run did to the device: figures, and a record from which any moment can be laid out."""

import numpy as np

from gpu_plan.planner.memory.allocator.calls import DriverCalls
from gpu_plan.planner.memory.allocator.heap import Action, DriverCall
from gpu_plan.planner.memory.allocator.settings import IntArray
from gpu_plan.planner.plain.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The request at which the run dies, in the words of torch's message; bytes."""

    event: int
    tensor: int
    requested_bytes: int
    """The tensor's own bytes."""
    tried_bytes: int
    """What was asked of the driver ("Tried to allocate")."""
    free_bytes: int
    """What the driver still had."""
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A range of addresses taken from the driver, or mapped."""

    address: int
    nbytes: int
    stream: int
    small: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Part of a segment, in use by a tensor or free (`tensor` is -1)."""

    address: int
    nbytes: int
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorResult:
    """Figures in bytes, as torch.cuda.memory_stats() counts them.

    Arrays have one entry per handled event (all, or those before the request that failed).
    """

    peak_allocated_bytes: int
    """allocated_bytes.all.peak: sizes of blocks, with what is not split off."""
    peak_allocated_at: int
    """Index of the event that first reaches it; -1 without events."""
    peak_active_bytes: int
    """active_bytes.all.peak: with freed blocks that wait for a stream."""
    peak_requested_bytes: int
    """requested_bytes.all.peak."""
    peak_reserved_bytes: int
    """reserved_bytes.all.peak."""
    peak_reserved_at: int
    reserved_at_end: int
    num_alloc_retries: int
    retried_at: tuple[int, ...]
    """Events at which cached memory was given back for want of room."""
    oom_at: OutOfMemory | None
    fragmentation_bytes: int
    """Reserved minus allocated when reserved first stands at its peak."""
    tensors: IntArray
    charged: IntArray
    """Bytes of the block that each event takes (positive) or gives back (negative); 0 for empty tensors."""
    addresses: IntArray
    """Address of that block; -1 for empty tensors."""
    driver: DriverCalls
    """What was asked of the driver, in time order."""

    @property
    def calls(self) -> tuple[DriverCall, ...]:
        """The same, call by call."""
        return self.driver.made()

    @property
    def largest_free_block(self) -> int:
        """Largest free block when allocated stands at its peak."""
        alive = alive_allocations(self.tensors, self.charged, self.addresses, self.peak_allocated_at)
        starts = self.addresses[alive]
        return largest_gap(self.segments_at(self.peak_allocated_at), starts, starts + self.charged[alive])

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Segments at the end of the run."""
        return segments_after(self.calls, len(self.charged))

    @property
    def allocated(self) -> IntArray:
        """allocated_bytes.all.current after each event."""
        return np.cumsum(self.charged)

    @property
    def reserved(self) -> IntArray:
        """reserved_bytes.all.current after each event."""
        return reserved_after(self.calls, len(self.charged))

    def block_bytes(self, num_tensors: int) -> IntArray:
        """Bytes charged for each tensor, 0 for those never allocated: these sum up to the allocated bytes."""
        charged = np.zeros(num_tensors, dtype=np.int64)
        taken = self.charged > 0
        charged[self.tensors[taken]] = self.charged[taken]
        return charged

    def segments_at(self, event: int) -> tuple[Segment, ...]:
        """Segments just after an event, by address; adjoining mapped ranges are one."""
        return segments_after(self.calls, event)

    def blocks_at(self, event: int) -> tuple[Block, ...]:
        """Blocks just after an event, by address; they tile the segments."""
        alive = self._alive_at(event)
        blocks = []
        position = 0
        for segment in self.segments_at(event):
            at, end = segment.address, segment.address + segment.nbytes
            while position < len(alive) and alive[position].address < end:
                block = alive[position]
                if block.address > at:
                    blocks.append(Block(address=at, nbytes=block.address - at, tensor=-1))
                blocks.append(block)
                at = block.address + block.nbytes
                position += 1
            if at < end:
                blocks.append(Block(address=at, nbytes=end - at, tensor=-1))
        return tuple(blocks)

    def _alive_at(self, event: int) -> list[Block]:
        return [
            Block(address=int(self.addresses[last]), nbytes=int(self.charged[last]), tensor=int(self.tensors[last]))
            for last in alive_allocations(self.tensors, self.charged, self.addresses, event)
        ]


def alive_allocations(tensors: IntArray, charged: IntArray, addresses: IntArray, event: int) -> IntArray:
    """Events up to `event` whose blocks are in use after it, by address."""
    upto = tensors[: event + 1]
    _, last = np.unique(upto[::-1], return_index=True)
    last = len(upto) - 1 - last
    last = last[charged[last] > 0]
    return last[np.argsort(addresses[last])]


def largest_gap(segments: tuple[Segment, ...], starts: IntArray, ends: IntArray) -> int:
    """Largest free range inside segments, given blocks in use by address."""
    bounds = np.asarray([(segment.address, segment.address + segment.nbytes) for segment in segments], dtype=np.int64)
    if not len(bounds):
        return 0
    # A segment's two ends are blocks without length: the gaps inside it then lie between neighbours.
    left = np.concatenate([bounds[:, 0], ends])
    right = np.concatenate([starts, bounds[:, 1]])
    return int((np.sort(right) - np.sort(left)).max())


def reserved_after(calls: tuple[DriverCall, ...], num_events: int) -> IntArray:
    """Reserved bytes after each of `num_events` events."""
    change = np.zeros(num_events, dtype=np.int64)
    for call in calls:
        if call.event < num_events:
            change[call.event] += call.change
    return np.cumsum(change)


def segments_after(calls: tuple[DriverCall, ...], event: int) -> tuple[Segment, ...]:
    """Segments just after an event, by address."""
    held: dict[int, Segment] = {}
    for call in calls:
        if call.event > event:
            break
        if call.action is Action.SEGMENT_FREE:
            del held[call.address]
        elif call.action is Action.SEGMENT_UNMAP:
            _cut(held, call.address, call.address + call.nbytes)
        else:
            held[call.address] = Segment(address=call.address, nbytes=call.nbytes, stream=call.stream, small=call.small)
    return _joined([held[address] for address in sorted(held)])


def _cut(held: dict[int, Segment], start: int, end: int) -> None:
    for segment in list(held.values()):
        stop = segment.address + segment.nbytes
        if segment.address >= end or stop <= start:
            continue
        del held[segment.address]
        for first, last in ((segment.address, start), (end, stop)):
            if first < last:
                held[first] = Segment(address=first, nbytes=last - first, stream=segment.stream, small=segment.small)


def _joined(segments: list[Segment]) -> tuple[Segment, ...]:
    """Mapped ranges that touch are one segment; segments of their own never touch."""
    joined: list[Segment] = []
    for segment in segments:
        if joined and joined[-1].address + joined[-1].nbytes == segment.address:
            before = joined.pop()
            segment = Segment(
                address=before.address,
                nbytes=before.nbytes + segment.nbytes,
                stream=before.stream,
                small=before.small,
            )
        joined.append(segment)
    return tuple(joined)
