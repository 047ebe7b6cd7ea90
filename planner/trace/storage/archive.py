"""A trace as bytes and back; anything that is not exactly a trace is refused.

One format for the cache and for the traces that are shipped: a JSON text and the columns. In the cache each is
compressed by itself, in a book many together.
"""

import json
import lzma
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_plan.planner.trace.events import NARROW, IntArray, ModuleLayout, ParameterInfo, StepTrace
from gpu_plan.planner.trace.storage.columns import (
    CorruptColumnError,
    packed,
    packed_floats,
    unpacked,
    unpacked_floats,
    unpacked_starts,
)
from gpu_plan.planner.trace.storage.common import common_column, common_row, digest
from gpu_plan.planner.trace.storage.named import named

_TENSORS, _OPERATORS = (
    ("bytes_fixed", "bytes_per_sample", "category", "tensor_module", "tensor_operator", "tensor_parameter"),
    ("op_name", "op_module", "op_phase"),
)
_FLOATS = ("op_flops_fixed", "op_flops_per_sample", "op_bytes_fixed", "op_bytes_per_sample")
_RAGGED = (("op_reads_at", "op_reads"), ("op_writes_at", "op_writes"))
_GROWING = frozenset({"tensor_module", "tensor_parameter", "op_module"})
"""Numbers that grow from layer to layer."""
_FORMAT = 4
_MOST = 1 << 30
"""Bytes that a trace may take: far above any, so that a damaged file cannot take the memory."""


class CorruptTraceError(Exception):
    """The bytes do not hold a trace of this format."""


def dump(trace: StepTrace) -> bytes:
    """The trace, compressed."""
    return lzma.compress(written(trace), format=lzma.FORMAT_XZ, preset=0)


def written(trace: StepTrace) -> bytes:
    """The trace as it is."""
    shapes, shape_index = np.unique(np.asarray(trace.tensor_shape, dtype=np.str_), return_inverse=True)
    columns: list[bytes] = [packed(trace.kind), packed(trace.subject, trace.kind)]
    columns += [packed(getattr(trace, name), _groups(name, trace.num_tensors)) for name in _TENSORS]
    columns += [packed(getattr(trace, name), _groups(name, len(trace.op_name))) for name in _OPERATORS]
    columns += [packed_floats(getattr(trace, name)) for name in _FLOATS]
    for at_name, name in _RAGGED:
        at, values = getattr(trace, at_name), getattr(trace, name)
        columns += [packed(np.diff(at)), packed(values >= 0), packed(values, values >= 0)]
    columns.append(packed(shape_index.astype(np.int64)))
    rest = {
        "format": _FORMAT,
        "counts": [trace.num_events, trace.num_tensors, len(trace.op_name)],
        "ragged": [len(getattr(trace, name)) for _, name in _RAGGED],
        "columns": [len(column) for column in columns],
        "shapes": shapes.tolist(),
        "modules": trace.modules,
        "operator_names": trace.operator_names,
        "parameters": [
            [p.name, p.shape, p.dtype, p.trainable, p.module, p.split, *_spread(p)] for p in trace.parameters
        ],
        "buffer_bytes": trace.buffer_bytes,
        "inputs": trace.inputs,
        "samples": trace.samples,
        "tokens_per_sample": trace.tokens_per_sample,
        "layout": asdict(trace.layout),
        "origins": _numbered(trace.tensor_origin),
        "held": trace.held,
        "host_reads": trace.host_reads,
        "notes": trace.notes,
    }
    text = json.dumps(rest, separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *columns])


def _spread(parameter: ParameterInfo) -> list[object]:
    """What only a model that is spread over ranks has."""
    if parameter.tied_to:
        return [parameter.experts, parameter.tied_to]
    return [True] if parameter.experts else []


def _groups(name: str, count: int) -> IntArray | None:
    return np.zeros(count, dtype=np.int64) if name in _GROWING else None


def _numbered(texts: list[str]) -> tuple[list[str], list[int]]:
    """Distinct texts, and which of them each one is."""
    known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return list(known), [known[text] for text in texts]


def load(content: bytes) -> StepTrace:
    """The trace in compressed `content`; CorruptTraceError when there is none."""
    try:
        inflater = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        raw = inflater.decompress(content, max_length=_MOST)
    except (lzma.LZMAError, EOFError) as problem:
        raise CorruptTraceError(str(problem)) from None
    if not inflater.eof:
        raise CorruptTraceError("it ends early")
    return read(raw)


def read(content: bytes) -> StepTrace:
    """The trace that was `written` as `content`; CorruptTraceError when there is none."""
    try:
        rest, lists, columns = _opened(content)
        events, tensors, operators = (int(count) for count in rest["counts"])
        kinds = next(columns)
        kind = _ints("kind", kinds, events)
        arrays: dict[str, Any] = {"kind": kind, "subject": _ints("subject", next(columns), events, (kind, kinds))}
        arrays |= {name: _ints(name, next(columns), tensors, _grouped(name, tensors)) for name in _TENSORS}
        arrays |= {name: _ints(name, next(columns), operators, _grouped(name, operators)) for name in _OPERATORS}
        for name in _FLOATS:
            column = next(columns)
            arrays[name] = common_column(
                ("floats", digest(column), operators), partial(unpacked_floats, column, operators)
            )
        for (at_name, name), length in zip(_RAGGED, rest["ragged"], strict=True):
            lengths, places = next(columns), next(columns)
            known = unpacked(places, int(length))
            arrays[at_name] = common_column((at_name, digest(lengths), operators), partial(_starts, lengths, operators))
            arrays[name] = _ints(name, next(columns), int(length), (known, places))
        layout: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in rest["layout"].items()
        }
        return StepTrace(
            **arrays,
            **lists,
            tensor_shape=_shapes(rest["shapes"], next(columns), tensors),
            samples=tuple(rest["samples"]),
            tokens_per_sample=rest["tokens_per_sample"],
            layout=ModuleLayout(**layout),
            tensor_origin=[rest["origins"][0][index] for index in rest["origins"][1]],
            held=[int(tensor) for tensor in rest["held"]],
            host_reads=rest["host_reads"],
            notes=rest["notes"],
        )
    except (KeyError, ValueError, TypeError, IndexError, StopIteration, CorruptColumnError) as problem:
        raise CorruptTraceError(str(problem)) from None


_Grouped = tuple[IntArray, bytes]
"""Groups, and bytes that decide them."""


def _grouped(name: str, count: int) -> _Grouped | None:
    groups = _groups(name, count)
    return None if groups is None else (groups, b"")


def _ints(name: str, content: bytes, count: int, grouped: _Grouped | None = None) -> IntArray:
    """A column of integers, as narrow as a trace holds it."""
    dtype = NARROW.get(name, np.int64)
    groups, decide = (None, None) if grouped is None else (grouped[0], digest(grouped[1]))
    key = (dtype, digest(content), count, decide)
    return common_column(key, partial(unpacked, content, count, groups, dtype))


def _starts(lengths: bytes, count: int) -> IntArray:
    """Where each row of a ragged column starts, and the end, from how long each is."""
    return unpacked_starts(lengths, count, NARROW["op_reads_at"])


def _shapes(shapes: list[str], content: bytes, count: int) -> list[str]:
    key = (digest(content), count, digest("\0".join(shapes).encode()))
    return common_row(key, lambda: [shapes[index] for index in unpacked(content, count).tolist()])


def _opened(raw: bytes) -> tuple[dict[str, Any], dict[str, Any], Iterator[bytes]]:
    """The JSON text, what it names, and the columns in their order."""
    start = 8 + int.from_bytes(raw[:8], "little")
    text = raw[8:start]
    # Within a text a quotation mark is written with a backslash: these stand where the lists do, and nowhere else.
    first, last = text.find(b',"modules":'), text.find(b',"samples":')
    if not 0 <= first < last:
        raise CorruptTraceError("its lists are not where they belong")
    rest = json.loads(text[:first] + text[last:])
    if rest["format"] != _FORMAT:
        raise CorruptTraceError("another format")
    ends = np.cumsum([start, *rest["columns"]]).tolist()
    lists = named(b"{" + text[first + 1 : last] + b"}")
    return rest, lists, (raw[first:last] for first, last in pairwise(ends))
