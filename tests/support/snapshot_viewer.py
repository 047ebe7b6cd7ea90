"""Reads a memory snapshot as a careful reader would, and plays its history as PyTorch's memory viewer does."""

import io
import pickle
import pickletools
from dataclasses import dataclass, field

VIEWER_OPCODES = {
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT",
    "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK",
    "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3",
}  # fmt: skip
"""What torch/utils/viz/MemoryViz.js (unpickle) understands; any other one is an error there."""


class _PlainOnly(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"a snapshot holds plain values, not {module}.{name}")


def read(content: bytes) -> dict:
    """The snapshot in `content`; fails for anything but plain values."""
    return _PlainOnly(io.BytesIO(content)).load()


def unknown_opcodes(content: bytes) -> set[str]:
    """Pickle opcodes that the viewer does not read."""
    return {opcode.name for opcode, _, _ in pickletools.genops(content)} - VIEWER_OPCODES


@dataclass
class Played:
    """The device after the history, and its peaks on the way."""

    segments: dict[int, int] = field(default_factory=dict)
    """Bytes by address."""
    blocks: dict[int, int] = field(default_factory=dict)
    """Requested bytes by address."""
    peak_reserved: int = 0
    peak_requested: int = 0

    def holds(self, address: int, size: int) -> bool:
        """Whether mapped memory is there from `address` on."""
        return any(start <= address and address + size <= start + room for start, room in self.segments.items())


def play(events: list[dict]) -> Played:
    """Fails where an event contradicts what went before."""
    device = Played()
    pending = None
    for event in events:
        action = event["action"]
        if action == "oom":
            continue
        address, size = event["addr"], event["size"]
        assert (pending is None) == (action != "free_completed")
        if action == "alloc":
            assert address not in device.blocks
            assert device.holds(address, size)
            device.blocks[address] = size
        elif action == "free_requested":
            assert device.blocks[address] == size
            pending = address
        elif action == "free_completed":
            assert pending == address
            del device.blocks[address]
            pending = None
        elif action in ("segment_alloc", "segment_map"):
            _map(device, address, size, joins=action == "segment_map")
        else:
            _unmap(device, address, size)
        device.peak_reserved = max(device.peak_reserved, sum(device.segments.values()))
        device.peak_requested = max(device.peak_requested, sum(device.blocks.values()))
    return device


def _map(device: Played, address: int, size: int, joins: bool) -> None:
    if joins:
        size += device.segments.pop(address + size, 0)
        for start, room in list(device.segments.items()):
            if start + room == address:
                device.segments[start] = room + size
                return
    assert address not in device.segments
    device.segments[address] = size


def _unmap(device: Played, address: int, size: int) -> None:
    start = next(start for start, room in device.segments.items() if start <= address < start + room)
    end = start + device.segments.pop(start)
    assert address + size <= end
    for first, last in ((start, address), (address + size, end)):
        if first < last:
            device.segments[first] = last - first


def check(snapshot: dict) -> Played:
    """Every field that the viewer needs, and that the state at the end is what the history leads to."""
    (events,) = snapshot["device_traces"]
    assert [event["time_us"] for event in events] == list(range(len(events)))
    categories = {event["category"] for event in events if "category" in event}
    assert not categories or "unknown" in categories  # MemoryViz.js stumbles otherwise
    for event in events:
        assert event["frames"]
        assert ("device_free" if event["action"] == "oom" else "addr") in event
        _check_frames(event["frames"])
    device = play(events)
    assert {row["address"]: row["total_size"] for row in snapshot["segments"]} == device.segments
    blocks = {}
    for segment in snapshot["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            assert block["requested_size"] <= block["size"]
            at += block["size"]
            if block["state"] == "active_allocated":
                blocks[block["address"]] = block["requested_size"]
                _check_frames(block["frames"])
                assert block["frames"]
            else:
                assert (block["state"], block["requested_size"]) == ("inactive", 0)
        assert at == segment["address"] + segment["total_size"]
        used = sum(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated")
        assert segment["allocated_size"] == segment["active_size"] == used
        assert segment["segment_type"] in ("small", "large")
    assert blocks == device.blocks
    return device


def _check_frames(frames: list[dict]) -> None:
    for frame in frames:
        assert set(frame) == {"filename", "line", "name"}
        assert isinstance(frame["filename"], str)
        assert isinstance(frame["name"], str)
        assert frame["filename"]
        assert frame["name"]
        assert isinstance(frame["line"], int)
