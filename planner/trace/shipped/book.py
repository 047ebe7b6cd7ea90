"""One model's traces in one file: a line that names the format, a checksum, an index, and the traces behind it. Pure.

gpu-plan traces 3\\n | sha256 of the rest | bytes of the index | index, deflated JSON | parts, each of many traces

Traces of a model differ in little: those that one job may ask for are compressed together, a sixth of what they take
one by one. Those over sequence lengths and those of devices before flash attention are parts of their own.

A book without traces says what the model is: its parameters are known before anything of torch is imported.
"""

import hashlib
import json
import lzma
import zlib
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from gpu_plan.planner.model.spec import ModelSpec, spec_from
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.shipped.beginning import Beginning, packed
from gpu_plan.planner.trace.storage import CorruptTraceError, read

_NAME = b"gpu-plan traces 3\n"
_DIGEST = hashlib.sha256().digest_size
_SIZE = 8
_LARGEST = 2**26
"""Bytes of an index; that of the largest model is a tenth of it."""
_LARGEST_PART = 2**28
"""Bytes of a part; that of the largest model is a fifth of it."""


class DamagedBookError(Exception):
    """The bytes are no book of this format, or not the one that was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """What is shipped about one model."""

    model: str
    """Hub id under which it was traced."""
    versions: Mapping[str, str]
    """Projects that it was traced with."""
    files: Mapping[str, str]
    """Their files that the traces passed through, `transformers/models/llama/modeling_llama.py`, and their digests."""
    spec: ModelSpec
    places: Mapping[str, tuple[int, int, int]]
    """By key: in which of the parts a trace lies, its first byte there and its length."""
    parts: tuple[tuple[int, int], ...]
    """Of each part: the bytes that it takes among `content`, and those that it holds."""
    content: bytes
    refusals: Mapping[str, str] = field(default_factory=dict)
    """By key: why a step cannot be traced, in the words of whoever refuses it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """By name: what else a plan asks of the built model, as JSON has it."""
    _read: dict[int, Beginning] = field(default_factory=dict)
    """Parts that were asked for, as far as they were."""

    def trace(self, key: str) -> StepTrace | None:
        """The trace of a key; None where it is not shipped. DamagedBookError where it cannot be read."""
        if key not in self.places:
            return None
        try:
            return read(self.stored(key))
        except CorruptTraceError as problem:
            raise DamagedBookError(str(problem)) from None

    def stored(self, key: str) -> bytes:
        """A trace as it was written. DamagedBookError where its part cannot be read."""
        number, first, length = self.places[key]
        start = sum(taken for taken, _ in self.parts[:number])
        taken, holds = self.parts[number]
        if first + length > min(holds, _LARGEST_PART):
            raise DamagedBookError("a part of it is too large, or holds less than was asked for")
        part = self._read.setdefault(number, Beginning(self.content[start : start + taken]))
        try:
            return part.piece(first, first + length)
        except (lzma.LZMAError, EOFError) as problem:
            raise DamagedBookError(str(problem)) from None


def write_book(
    model: str,
    versions: Mapping[str, str],
    files: Mapping[str, str],
    spec: ModelSpec,
    traces: Mapping[str, bytes],
    refusals: Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> bytes:
    """A book's bytes, of traces as they are `written`; equal ones stand in it once."""
    parts: dict[str, list[bytes]] = {}
    places: dict[bytes, tuple[int, int, int]] = {}
    for key, trace in sorted(traces.items(), key=lambda one: (one[0].partition(" ")[2], one[0])):
        if trace not in places:  # the same step of one device lies beside that of another
            part = parts.setdefault(_part_of(key), [])
            places[trace] = (list(parts).index(_part_of(key)), sum(map(len, part)), len(trace))
            part.append(trace)
    held = [b"".join(part) for part in parts.values()]
    taken = [packed(part) for part in held]
    index = {
        "model": model,
        "versions": dict(versions),
        "files": dict(sorted(files.items())),
        "spec": asdict(spec),
        "parts": [[len(takes), len(holds)] for takes, holds in zip(taken, held, strict=True)],
        "places": {key: places[trace] for key, trace in sorted(traces.items())},
        **({"refusals": dict(sorted(refusals.items()))} if refusals else {}),
        **({"facts": dict(facts)} if facts else {}),
    }
    text = zlib.compress(json.dumps(index, separators=(",", ":")).encode(), 9)
    body = len(text).to_bytes(_SIZE, "little") + text + b"".join(taken)
    return _NAME + hashlib.sha256(body).digest() + body


def _part_of(key: str) -> str:
    """Traces over lengths are asked for where those of one length are not; those of devices that choose nearly alike
    stand together, and so do generations of several new tokens."""
    if "seq=*" in key:
        return "lengths"
    if " generate " in key and " steps=2 " not in key:
        return "longer"
    return "old" if key.startswith("before-flash ") else "new"


def read_book(content: bytes) -> Book:
    """The book in `content`; DamagedBookError where it is none."""
    name, rest = content[: len(_NAME)], content[len(_NAME) :]
    if name != _NAME:
        raise DamagedBookError("another format")
    checksum, body = rest[:_DIGEST], rest[_DIGEST:]
    if hashlib.sha256(body).digest() != checksum:
        raise DamagedBookError("its checksum does not hold")
    start = _SIZE + int.from_bytes(body[:_SIZE], "little")
    try:
        index: dict[str, Any] = json.loads(_inflated(body[_SIZE:start]))
        return Book(
            model=index["model"],
            versions=index["versions"],
            files=index["files"],
            spec=spec_from(index["spec"]),
            places={
                key: (int(part), int(first), int(length)) for key, (part, first, length) in index["places"].items()
            },
            parts=tuple((int(taken), int(holds)) for taken, holds in index["parts"]),
            content=body[start:],
            refusals={str(key): str(why) for key, why in index.get("refusals", {}).items()},
            facts=dict(index.get("facts", {})),
        )
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as problem:
        raise DamagedBookError(str(problem)) from None


def _inflated(content: bytes) -> bytes:
    """At most `_LARGEST` bytes of it: a book that names more is none of ours."""
    reader = zlib.decompressobj()
    found = reader.decompress(content, _LARGEST)
    if not reader.eof:
        raise DamagedBookError("its index is cut off, or too large")
    return found
