"""A trace with what tells how its numbers grow: one text, and columns behind it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.storage.archive import CorruptTraceError, read, written


def framed(trace: StepTrace, form: int, rest: Mapping[str, Any], columns: Sequence[bytes]) -> bytes:
    """Uncompressed; `form` is the number of the text's format."""
    held = written(trace)
    described = {"format": form, **rest, "columns": [len(column) for column in columns]}
    text = json.dumps(described, separators=(",", ":")).encode()
    return b"".join([len(held).to_bytes(8, "little"), held, len(text).to_bytes(8, "little"), text, *columns])


def unframed(content: bytes, form: int) -> tuple[StepTrace, dict[str, Any], Iterator[bytes]]:
    """What was written as `content`. CorruptTraceError for another format; KeyError, TypeError or ValueError for what
    is no such text."""
    end = 8 + int.from_bytes(content[:8], "little")
    trace, raw = read(content[8:end]), content[end:]
    start = 8 + int.from_bytes(raw[:8], "little")
    rest = json.loads(raw[8:start])
    if rest["format"] != form:
        raise CorruptTraceError("another format")
    ends = np.cumsum([start, *rest["columns"]]).tolist()
    return trace, rest, (raw[first:last] for first, last in pairwise(ends))
