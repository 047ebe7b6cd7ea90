"""A trace as bytes and back; anything that is not exactly a trace is refused.

One format for the cache and for the traces that are shipped: a JSON text and the columns. In the cache each is
compressed by itself, in a book many together.
"""

import json
import lzma
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_plan.planner.trace.events import IntArray, ModuleLayout, ParameterInfo, StepTrace
from gpu_plan.planner.trace.storage.columns import CorruptColumnError, packed, packed_floats, unpacked, unpacked_floats

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
        rest, columns = _opened(content)
        events, tensors, operators = (int(count) for count in rest["counts"])
        kind = unpacked(next(columns), events)
        arrays: dict[str, Any] = {"kind": kind, "subject": unpacked(next(columns), events, kind)}
        arrays |= {name: unpacked(next(columns), tensors, _groups(name, tensors)) for name in _TENSORS}
        arrays |= {name: unpacked(next(columns), operators, _groups(name, operators)) for name in _OPERATORS}
        arrays |= {name: unpacked_floats(next(columns), operators) for name in _FLOATS}
        for (at_name, name), length in zip(_RAGGED, rest["ragged"], strict=True):
            lengths, known = unpacked(next(columns), operators), unpacked(next(columns), int(length))
            arrays[at_name] = np.concatenate([[0], np.cumsum(lengths)])
            arrays[name] = unpacked(next(columns), int(length), known)
        shape_index = unpacked(next(columns), tensors)
        shapes = rest["shapes"]
        layout: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in rest["layout"].items()
        }
        return StepTrace(
            **arrays,
            tensor_shape=[shapes[index] for index in shape_index.tolist()],
            modules=rest["modules"],
            operator_names=rest["operator_names"],
            parameters=[
                ParameterInfo(
                    name=name,
                    shape=tuple(shape),
                    dtype=dtype,
                    trainable=trainable,
                    module=module,
                    split=bool(split and split[0]),
                    experts=bool(split[1:] and split[1]),
                    tied_to=str(split[2]) if split[2:] else "",
                )
                for name, shape, dtype, trainable, module, *split in rest["parameters"]
            ],
            buffer_bytes=[(name, size) for name, size in rest["buffer_bytes"]],
            inputs=[(name, per_sample, fixed) for name, per_sample, fixed in rest["inputs"]],
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


def _opened(raw: bytes) -> tuple[dict[str, Any], Iterator[bytes]]:
    """The JSON text, and the columns in their order."""
    start = 8 + int.from_bytes(raw[:8], "little")
    rest = json.loads(raw[8:start])
    if rest["format"] != _FORMAT:
        raise CorruptTraceError("another format")
    ends = np.cumsum([start, *rest["columns"]]).tolist()
    return rest, (raw[first:last] for first, last in pairwise(ends))
