"""Memory snapshots of torch as plain values: `torch.cuda.memory._dump_snapshot` files, and those of `--snapshot`.

They are pickles, which can name any function to call; read here are dicts, lists, tuples, text, numbers and None
alone. Field names are those of torch/csrc/cuda/memory_snapshot.cpp (_memory_snapshot_pickled). Pure but for the stream
that it is given.
"""

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.memory import at_most

MAX_BYTES = 2 * 2**30
"""Larger files are refused."""
_PER_BYTE, _BESIDES = 24, 2**28
"""Memory for reading: an empty dict is one byte of a pickle and 64 here, a place in its memo is 16 for every number."""
_LONGEST = 4096
_ALLOCATION, _FREES = "alloc", ("free", "free_completed")
_TAKEN, _GIVEN_BACK = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
_OTHERS = ("free_requested", "snapshot", "oom", "user_defined", "workspace_snapshot", "annotation")
_BROKEN = (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError, MemoryError,
           OverflowError, RecursionError, ImportError)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One place in the stack of an allocation, or what a predicted snapshot says in its stead."""

    file: str
    line: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One request to the allocator."""

    nbytes: int
    """As requested."""
    stream: int
    frames: tuple[Frame, ...]
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What one device's allocator did."""

    name: str
    """The file it came from."""
    device: int
    allocations: tuple[Allocation, ...]
    peak_requested: int
    """Most bytes in use at once, before rounding; what stood before the record begins is counted."""
    peak_at: int
    """Allocations made when that was reached."""
    peak_reserved: int
    ran_out: bool
    """Whether memory ran out at the end."""


class _PlainOnly(pickle.Unpickler):
    """find_class is the only way from a pickle to anything that runs."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a snapshot holds plain values only")

    def persistent_load(self, pid: object) -> object:
        raise pickle.UnpicklingError("it refers to objects outside of itself")


def read_history(content: bytes, where: str) -> History:
    """The device with the longest record; InputError in one line for anything that is no snapshot."""
    try:
        with at_most(_PER_BYTE * len(content) + _BESIDES):
            loaded = _PlainOnly(io.BytesIO(content)).load()
    except _BROKEN as problem:
        words = str(problem).splitlines() or [type(problem).__name__]
        raise InputError(f"{where}: not a memory snapshot, or only a part of one: {words[0][:200]}") from None
    if not isinstance(loaded, dict) or not {"segments", "device_traces"} <= set(loaded):
        raise InputError(
            f"{where}: not a memory snapshot: torch.cuda.memory._dump_snapshot writes `segments` and `device_traces`"
        )
    traces = [
        _list(trace, where, f"device_traces[{index}]")
        for index, trace in enumerate(_list(loaded["device_traces"], where, "device_traces"))
    ]
    lengths = [len(trace) for trace in traces]
    if not any(lengths):
        raise InputError(
            f"{where}: it holds no history; call torch.cuda.memory._record_memory_history() before what is to be"
            " recorded"
        )
    device = lengths.index(max(lengths))
    return _Reader(where, device).history(traces[device], _list(loaded["segments"], where, "segments"))


@dataclass(slots=True)
class _Reader:
    """Turns one device's record into a History; frames that are shared stay so."""

    where: str
    device: int
    _frames: dict[int, tuple[Frame, ...]] = field(default_factory=dict)

    def history(self, trace: list[object], segments: list[object]) -> History:
        allocations: list[Allocation] = []
        in_use = reserved = most = most_reserved = at = 0
        ran_out = False
        for action, row, place in self._events(trace):
            size = self._integer(row, "size", place)
            if action == _ALLOCATION:
                allocations.append(self._allocation(row, size, place))
                in_use += size
                if in_use > most:
                    most, at = in_use, len(allocations)
            elif action in _FREES:
                in_use -= size
            elif action in _TAKEN:
                reserved += size
                most_reserved = max(most_reserved, reserved)
            elif action in _GIVEN_BACK:
                reserved -= size
            ran_out = ran_out or action == "oom"
        standing, held = self._at_end(segments)
        return History(
            name=self.where,
            device=self.device,
            allocations=tuple(allocations),
            peak_requested=most + standing - in_use,
            peak_at=at,
            peak_reserved=most_reserved + held - reserved,
            ran_out=ran_out,
        )

    def _events(self, trace: list[object]) -> Iterator[tuple[str, dict[str, object], str]]:
        for number, row in enumerate(trace):
            place = f"device_traces[{self.device}][{number}]"
            if not isinstance(row, dict) or not isinstance(row.get("action"), str):
                raise InputError(f"{self.where}: {place} is not an event with an action")
            action = row["action"]
            if action not in (_ALLOCATION, *_FREES, *_TAKEN, *_GIVEN_BACK, *_OTHERS):
                raise InputError(f"{self.where}: {place}: unknown action {action[:40]!r}; another version wrote it")
            if action not in ("snapshot", "user_defined", "workspace_snapshot", "annotation"):
                yield action, row, place

    def _at_end(self, segments: list[object]) -> tuple[int, int]:
        """Bytes requested and reserved on the device when the snapshot was taken."""
        requested = held = 0
        for number, segment in enumerate(segments):
            place = f"segments[{number}]"
            if not isinstance(segment, dict):
                raise InputError(f"{self.where}: {place} is not a segment")
            if segment.get("device", self.device) != self.device:
                continue
            held += self._integer(segment, "total_size", place)
            for block in _list(segment.get("blocks"), self.where, f"{place}.blocks"):
                if isinstance(block, dict) and _text(block.get("state")).startswith("active"):
                    key = "requested_size" if "requested_size" in block else "size"
                    requested += self._integer(block, key, f"{place}.blocks")
        return requested, held

    def _allocation(self, row: dict[str, object], size: int, place: str) -> Allocation:
        stream, category = row.get("stream", 0), row.get("category")
        return Allocation(
            nbytes=size,
            stream=stream if isinstance(stream, int) and abs(stream) < 2**64 else 0,
            frames=self._stack(row.get("frames", []), place),
            category=_text(category),
        )

    def _stack(self, frames: object, place: str) -> tuple[Frame, ...]:
        if id(frames) not in self._frames:
            rows = _list(frames, self.where, f"{place}.frames")
            self._frames[id(frames)] = tuple(_frame(row) for row in rows if isinstance(row, dict))
        return self._frames[id(frames)]

    def _integer(self, row: dict[str, object], key: str, place: str) -> int:
        value = row.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise InputError(f"{self.where}: {place}: {key} is not a number of bytes")
        return value


def _text(value: object) -> str:
    """Text as it is, nothing else: `str` of lists that hold one another unfolds them."""
    return value[:_LONGEST] if isinstance(value, str) else ""


def _frame(row: dict[str, object]) -> Frame:
    line = row.get("line")
    return Frame(
        file=_text(row.get("filename")),
        line=line if isinstance(line, int) and 0 <= line < 2**31 else 0,
        name=_text(row.get("name")),
    )


def _list(value: object, where: str, what: str) -> list[object]:
    if not isinstance(value, list):
        raise InputError(f"{where}: {what} is not a list; another version wrote it, or it is not a memory snapshot")
    return value
