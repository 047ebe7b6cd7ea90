"""A trace as bytes and back; anything that is not exactly a trace is refused."""

import io
import json
import zipfile
from dataclasses import asdict
from typing import Any, get_origin, get_type_hints

import numpy as np

from gpu_plan.planner.trace.events import ModuleLayout, ParameterInfo, StepTrace

_ARRAYS = tuple(name for name, hint in get_type_hints(StepTrace).items() if get_origin(hint) is np.ndarray)
_FORMAT = 4


class CorruptTraceError(Exception):
    """The bytes do not hold a trace of this format."""


def dump(trace: StepTrace) -> bytes:
    """The trace as an uncompressed npz archive: arrays, and the rest as one JSON text."""
    shapes, shape_index = np.unique(np.asarray(trace.tensor_shape, dtype=np.str_), return_inverse=True)
    rest = {
        "format": _FORMAT,
        "shapes": shapes.tolist(),
        "modules": trace.modules,
        "operator_names": trace.operator_names,
        "parameters": [[p.name, p.shape, p.dtype, p.trainable, p.module, p.split] for p in trace.parameters],
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
    arrays: dict[str, Any] = {name: getattr(trace, name) for name in _ARRAYS}
    arrays["shape_index"] = shape_index.astype(np.int32)
    arrays["rest"] = np.frombuffer(json.dumps(rest).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _numbered(texts: list[str]) -> tuple[list[str], list[int]]:
    """Distinct texts, and which of them each one is."""
    known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return list(known), [known[text] for text in texts]


def load(content: bytes) -> StepTrace:
    """The trace in `content`; CorruptTraceError when there is none."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            rest = json.loads(archive["rest"].tobytes())
            if rest["format"] != _FORMAT:
                raise CorruptTraceError("another format")
            arrays = {name: archive[name] for name in _ARRAYS}
            shape_index = archive["shape_index"]
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
                    name=name, shape=tuple(shape), dtype=dtype, trainable=trainable, module=module, split=any(split)
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
    except (KeyError, ValueError, TypeError, IndexError, OSError, zipfile.BadZipFile, EOFError) as problem:
        raise CorruptTraceError(str(problem)) from None
