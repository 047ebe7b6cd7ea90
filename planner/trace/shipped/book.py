"""One model's traces in one file: a line that names the format, a checksum, an index, and the traces behind it. Pure.

gpu-plan traces 2\\n | sha256 of the rest | bytes of the index | index, deflated JSON | traces, as `storage` has them

A book without traces says what the model is: its parameters are known before anything of torch is imported.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpu_plan.planner.model.spec import ModelSpec, spec_from
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.storage import CorruptTraceError, load

_NAME = b"gpu-plan traces 2\n"
_DIGEST = hashlib.sha256().digest_size
_SIZE = 8
_LARGEST = 2**26
"""Bytes of an index; that of the largest model is a tenth of it."""


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
    places: Mapping[str, tuple[int, int]]
    """By key: where a trace lies among `content`, first byte and length."""
    content: bytes

    def trace(self, key: str) -> StepTrace | None:
        """The trace of a key; None where it is not shipped. DamagedBookError where it cannot be read."""
        if key not in self.places:
            return None
        first, length = self.places[key]
        try:
            return load(self.content[first : first + length])
        except CorruptTraceError as problem:
            raise DamagedBookError(str(problem)) from None


def write_book(
    model: str, versions: Mapping[str, str], files: Mapping[str, str], spec: ModelSpec, traces: Mapping[str, bytes]
) -> bytes:
    """A book's bytes; equal traces stand in it once."""
    places: dict[bytes, tuple[int, int]] = {}
    content = b""
    for trace in traces.values():
        if trace not in places:
            places[trace] = (len(content), len(trace))
            content += trace
    index = {
        "model": model,
        "versions": dict(versions),
        "files": dict(sorted(files.items())),
        "spec": asdict(spec),
        "places": {key: places[trace] for key, trace in sorted(traces.items())},
    }
    text = zlib.compress(json.dumps(index, separators=(",", ":")).encode(), 9)
    body = len(text).to_bytes(_SIZE, "little") + text + content
    return _NAME + hashlib.sha256(body).digest() + body


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
            places={key: (int(first), int(length)) for key, (first, length) in index["places"].items()},
            content=body[start:],
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
