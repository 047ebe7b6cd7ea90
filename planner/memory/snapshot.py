"""A simulated run as torch.cuda.memory's snapshot: the structure that PyTorch's memory viewer opens.

Field names and their meaning are those of torch/csrc/cuda/memory_snapshot.cpp (_memory_snapshot_pickled) and of
torch/cuda/memory.py (_snapshot); torch/utils/viz/MemoryViz.js reads them. Plain dicts, lists, strings and integers
only, so that it can be pickled for any reader.

`time_us` counts the records: a plan predicts their order, not their time. Frames say what was allocated in place of
the Python stack: operator and shape, module by module outwards, phase, category.
"""

from collections.abc import Iterator
from typing import NotRequired, TypedDict

from gpu_plan.planner.memory.allocator.heap import Action, DriverCall
from gpu_plan.planner.memory.allocator.result import AllocatorResult, Block, Segment
from gpu_plan.planner.memory.profile import StandingTensor, describe, phase_at
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream

DEVICE = 0
"""Index of the one device that is shown, the worst rank's."""
_UNKNOWN = "unknown"
"""Category of driver calls. MemoryViz.js (annotate_snapshot) fails where categories are used and none is this one."""


class Frame(TypedDict):
    filename: str
    line: int
    name: str


class BlockRow(TypedDict):
    address: int
    size: int
    requested_size: int
    state: str
    frames: list[Frame]


class SegmentRow(TypedDict):
    device: int
    address: int
    total_size: int
    allocated_size: int
    requested_size: int
    active_size: int
    stream: int
    segment_type: str
    segment_pool_id: list[int]
    is_expandable: bool
    frames: list[Frame]
    blocks: list[BlockRow]


class Event(TypedDict):
    action: str
    addr: NotRequired[int]
    device_free: NotRequired[int]
    """In place of `addr` where memory ran out."""
    size: int
    """Requested bytes of allocations and frees, real bytes of segments."""
    stream: int
    time_us: int
    frames: list[Frame]
    category: NotRequired[str]


class Snapshot(TypedDict):
    segments: list[SegmentRow]
    device_traces: list[list[Event]]


def snapshot(stream: RankStream, micro_batch: int, result: AllocatorResult) -> Snapshot:
    """What a GPU would have recorded from the start of the run to its end, or to where memory runs out.

    `result` is the simulation of the same stream at the same micro batch.
    """
    return _Writer(stream, micro_batch, result).snapshot()


class _Writer:
    """Looks up each tensor once: frames are shared by all that happens to it."""

    def __init__(self, stream: RankStream, micro_batch: int, result: AllocatorResult) -> None:
        self._stream = stream
        self._micro_batch = micro_batch
        self._result = result
        self._tensors: list[int] = stream.event_tensor.tolist()
        self._requested: list[int] = stream.requested(micro_batch).tolist()
        self._streams: list[int] = stream.cuda_stream.tolist()
        self._described: dict[int, StandingTensor] = {}
        self._frames: dict[tuple[int, str], list[Frame]] = {}
        self._moments: dict[tuple[int, Phase], str] = {}

    def snapshot(self) -> Snapshot:
        trace: list[Event] = []
        for event in self._events():
            event["time_us"] = len(trace)
            trace.append(event)
        traces: list[list[Event]] = [[] for _ in range(DEVICE)]
        return {"segments": self._segments(), "device_traces": [*traces, trace]}

    # -- history -----------------------------------------------------------------------------------------------

    def _events(self) -> Iterator[Event]:
        calls: dict[int, list[DriverCall]] = {}
        for call in self._result.calls:
            calls.setdefault(call.event, []).append(call)
        charged: list[int] = self._result.charged.tolist()
        addresses: list[int] = self._result.addresses.tolist()
        for event, (change, address) in enumerate(zip(charged, addresses, strict=True)):
            for call in calls.get(event, ()):
                yield self._driver(call)
            if change > 0:
                yield self._alloc(event, address)
            elif change < 0:
                yield self._free("free_requested", event, address)
                yield self._free("free_completed", event, address)
        for call in calls.get(len(charged), ()):
            yield self._driver(call)
        out_of_memory = self._result.oom_at
        if out_of_memory is not None:
            yield {
                "action": "oom",
                "device_free": out_of_memory.free_bytes,
                "size": out_of_memory.tried_bytes,
                "stream": self._streams[out_of_memory.tensor],
                "time_us": 0,
                "frames": self._frames_at(out_of_memory.event),
            }

    def _driver(self, call: DriverCall) -> Event:
        return {
            "action": str(call.action),
            "addr": call.address,
            "size": call.nbytes,
            "stream": call.stream,
            "time_us": 0,
            "frames": self._frames_at(call.event),
            "category": _UNKNOWN,
        }

    def _alloc(self, event: int, address: int) -> Event:
        row = self._free("alloc", event, address)
        row["category"] = str(self._describe(self._tensors[event]).category)
        return row

    def _free(self, action: str, event: int, address: int) -> Event:
        tensor = self._tensors[event]
        return {
            "action": action,
            "addr": address,
            "size": self._requested[tensor],
            "stream": self._streams[tensor],
            "time_us": 0,
            "frames": self._frames_at(event),
        }

    # -- end of the run ----------------------------------------------------------------------------------------

    def _segments(self) -> list[SegmentRow]:
        result = self._result
        end = len(result.charged)
        grown = {call.address for call in result.calls if call.action is Action.SEGMENT_MAP}
        taken_at = {call.address: call.event for call in result.calls if call.change > 0}
        allocated_at = self._allocated_at()
        blocks = result.blocks_at(end)
        rows = []
        position = 0
        for segment in result.segments_at(end):
            stop = segment.address + segment.nbytes
            inside: list[Block] = []
            while position < len(blocks) and blocks[position].address < stop:
                inside.append(blocks[position])
                position += 1
            rows.append(
                self._segment(
                    segment,
                    [self._block(block, allocated_at) for block in inside],
                    self._frames_at(taken_at[segment.address]) if segment.address in taken_at else [],
                    segment.address in grown,
                )
            )
        return rows

    def _allocated_at(self) -> dict[int, int]:
        """Event at which each tensor was last allocated."""
        charged: list[int] = self._result.charged.tolist()
        return {tensor: event for event, tensor in enumerate(self._tensors[: len(charged)]) if charged[event] > 0}

    def _segment(self, segment: Segment, blocks: list[BlockRow], frames: list[Frame], grown: bool) -> SegmentRow:
        used = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
        return {
            "device": DEVICE,
            "address": segment.address,
            "total_size": segment.nbytes,
            "allocated_size": used,
            "requested_size": sum(block["requested_size"] for block in blocks),
            "active_size": used,
            "stream": segment.stream,
            "segment_type": "small" if segment.small else "large",
            "segment_pool_id": [0, 0],
            "is_expandable": grown,
            "frames": frames,
            "blocks": blocks,
        }

    def _block(self, block: Block, allocated_at: dict[int, int]) -> BlockRow:
        used = block.tensor >= 0
        return {
            "address": block.address,
            "size": block.nbytes,
            "requested_size": self._requested[block.tensor] if used else 0,
            "state": "active_allocated" if used else "inactive",
            "frames": self._frames_at(allocated_at[block.tensor]) if used else [],
        }

    # -- frames ------------------------------------------------------------------------------------------------

    def _frames_at(self, event: int) -> list[Frame]:
        """Innermost first, as torch has them."""
        tensor = self._tensors[event]
        moment = self._moment(event)
        key = (tensor, moment)
        if key not in self._frames:
            self._frames[key] = _frames(self._describe(tensor), moment)
        return self._frames[key]

    def _describe(self, tensor: int) -> StandingTensor:
        if tensor not in self._described:
            self._described[tensor] = describe(self._stream, tensor, self._requested[tensor], self._micro_batch)
        return self._described[tensor]

    def _moment(self, event: int) -> str:
        """`forward, iteration 2`."""
        phase = phase_at(self._stream, event)
        if phase is Phase.LOAD:
            return str(phase)
        key = (int(self._stream.event_segment[event]), phase)
        if key not in self._moments:
            done = sum(segment < key[0] for segment in self._stream.step_segments)
            self._moments[key] = f"{phase}, iteration {done + 1}"
        return self._moments[key]


def _frames(tensor: StandingTensor, moment: str) -> list[Frame]:
    own = tensor.module or ("model" if tensor.basis == "traced" else "strategy")
    frames = [_frame(own, " ".join(filter(None, (tensor.operator, tensor.shape))) or _UNKNOWN)]
    parts = tensor.module.split(".")
    for length in range(len(parts) - 1, 0, -1):
        frames.append(_frame(".".join(parts[:length]), parts[length]))
    frames.append(_frame("phase", moment))
    frames.append(_frame("category", str(tensor.category)))
    return frames


def _frame(filename: str, name: str) -> Frame:
    return {"filename": filename, "line": 0, "name": name}
