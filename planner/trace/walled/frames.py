"""Messages between a planning process and a factory's own: JSON one way, JSON or arrays the other."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.walls.guest import write_whole

MOST_BYTES = 2**30
_HEAD = struct.Struct(">cQ")
Kind = Literal[b"J", b"T", b"E"]
"""JSON, a trace, an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The first message: which model, and how it is looked at."""

    factory: str
    digest: str
    directory: str
    path: tuple[str, ...]
    """Where modules are found in the planning process."""
    device: DeviceKind
    attention: str
    adapter: Adapter | None = None
    unwalled: bool = False
    scratch: str
    processes: int
    written_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Any later message: for the spec, or for one trace."""

    variant: StepVariant | None = None
    micro_batch: int = 0


def framed(kind: bytes, content: bytes) -> bytes:
    """A message as it goes through a pipe."""
    return _HEAD.pack(kind, len(content)) + content


def send(descriptor: int, kind: bytes, content: bytes) -> None:
    """Writes a message. OSError where nobody reads any more."""
    write_whole(descriptor, framed(kind, content))


def receive(read: Callable[[int], bytes]) -> tuple[bytes, bytes] | None:
    """The next message, by a function that gives so many bytes; None at the end, or where it is none of ours."""
    head = read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    kind, length = _HEAD.unpack(head)
    content = read(length) if length <= MOST_BYTES else b""
    return (kind, content) if len(content) == length and kind in (b"J", b"T", b"E") else None


def error(kind: str, message: str) -> bytes:
    """A refusal."""
    return json.dumps({"kind": kind, "message": message[:2000]}).encode()
