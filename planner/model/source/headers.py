"""What safetensors headers say: names, shapes and dtypes. Tensor data is never read, pickles never opened.

The format is that of safetensors: eight bytes with the header's length (little endian), then a JSON object
from each tensor's name to `dtype`, `shape` and `data_offsets`, then the data.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.config_reader import parse_object, shown
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import ceil_div

MAX_HEADER = 100_000_000
"""Bytes; safetensors itself refuses more."""
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

ReadAt = Callable[[int, int], bytes]
"""(offset, length) to that many bytes of the file, or fewer at its end."""

_TORCH_NAMES: dict[str, tuple[str, int]] = {
    "BOOL": ("bool", 8),
    "F4": ("float4_e2m1fn", 4),
    "F6_E2M3": ("float6_e2m3fn", 6),
    "F6_E3M2": ("float6_e3m2fn", 6),
    "U8": ("uint8", 8),
    "I8": ("int8", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "I16": ("int16", 16),
    "U16": ("uint16", 16),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "I32": ("int32", 32),
    "U32": ("uint32", 32),
    "F32": ("float32", 32),
    "C64": ("complex64", 64),
    "F64": ("float64", 64),
    "I64": ("int64", 64),
    "U64": ("uint64", 64),
}
"""safetensors' dtype names: torch's name and bits of one element."""

StoredTensor = tuple[tuple[int, ...], str]
"""Shape and torch dtype name, as in `((4096, 4096), "bfloat16")`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """A checkpoint's tensors as its headers give them, each name once."""

    entries: Mapping[str, StoredTensor]
    parameters: int
    """Elements of all tensors; a checkpoint may hold buffers and copies of tied weights too."""
    bytes: int
    by_dtype: Mapping[str, int]
    """Elements per torch dtype name, most first."""

    @property
    def tensors(self) -> int:
        return len(self.entries)


def read_header(read: ReadAt, size: int | None, where: str) -> dict[str, StoredTensor]:
    """The tensors that one safetensors file declares; `size` is the file's length in bytes where known.

    Raises InputError in one line if the header is truncated, oversized, not JSON, or disagrees with the file.
    """
    prefix = read(0, 8)
    if len(prefix) < 8:
        raise _corrupt(where, "it is shorter than a header")
    length = int.from_bytes(prefix, "little")
    if prefix == b"version " or length > MAX_HEADER or (size is not None and length > size - 8):
        why = "it is a git-lfs pointer" if prefix == b"version " else f"its header claims {length:,} bytes"
        raise _corrupt(where, why)
    raw = read(8, length)
    if len(raw) < length:
        raise _corrupt(where, "its header is cut off")
    header = parse_object(raw, f"the header of {where}", max_bytes=MAX_HEADER, max_depth=4)
    header.pop("__metadata__", None)
    data_bytes = None if size is None else size - 8 - length
    return {name: _stored(name, entry, data_bytes, where) for name, entry in header.items()}


def collect(files: Iterable[Mapping[str, StoredTensor]]) -> StoredWeights | None:
    """All shards' tensors together; None if there are none."""
    entries: dict[str, StoredTensor] = {}
    for tensors in files:
        entries.update(tensors)
    if not entries:
        return None
    elements: Counter[str] = Counter()
    for shape, dtype in entries.values():
        elements[dtype] += math.prod(shape)
    total = sum(_num_bytes(shape, _BITS[dtype]) for shape, dtype in entries.values())
    by_dtype = dict(elements.most_common())
    return StoredWeights(entries=entries, parameters=sum(by_dtype.values()), bytes=total, by_dtype=by_dtype)


def shard_names(index: bytes, where: str) -> tuple[str, ...]:
    """The shards that a `model.safetensors.index.json` names, each a plain file name; sorted.

    Raises InputError for a name that would leave the checkpoint's own folder.
    """
    weight_map = parse_object(index, where, max_bytes=MAX_HEADER).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise InputError(f"{where} has no weight_map from tensor names to files: fetch it again")
    names = sorted(set(weight_map.values()))
    for name in names:
        if "/" in name or "\\" in name or not name.endswith(".safetensors"):
            raise InputError(f"{where} names the shard {shown(name)}, which is not a file beside it: fetch it again")
    return tuple(names)


def differences(stored: StoredWeights, parameters: Mapping[str, tuple[tuple[int, ...], str]]) -> list[str]:
    """What the checkpoint holds otherwise than the built model, in short lines; empty if nothing.

    `parameters` is the model's own, from name to (shape, torch dtype name), tied weights once.
    """
    return [
        *_count_line(stored, parameters),
        *_dtype_line(stored, parameters),
        *_shape_lines(stored, parameters),
    ]


_BITS = dict(_TORCH_NAMES.values())


def _corrupt(where: str, why: str) -> InputError:
    return InputError(f"{where} is not a usable safetensors file: {why}; fetch it again")


def _num_bytes(shape: tuple[int, ...], bits: int) -> int:
    return ceil_div(math.prod(shape) * bits, 8)


def _stored(name: str, entry: Any, data_bytes: int | None, where: str) -> StoredTensor:
    tensor = shown(name)
    if not isinstance(entry, dict):
        raise _corrupt(where, f"tensor {tensor} is not described")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _TORCH_NAMES:
        raise _corrupt(where, f"tensor {tensor} has the unknown dtype {shown(dtype)}")
    if not _are_sizes(shape) or len(shape) > 64:
        raise _corrupt(where, f"tensor {tensor} has no valid shape")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _corrupt(where, f"tensor {tensor} has no valid place")
    torch_name, bits = _TORCH_NAMES[dtype]
    begin, end = offsets
    if end - begin != _num_bytes(tuple(shape), bits) or (data_bytes is not None and end > data_bytes):
        raise _corrupt(where, f"tensor {tensor} does not have the bytes of its shape")
    return tuple(shape), torch_name


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _count_line(stored: StoredWeights, parameters: Mapping[str, StoredTensor]) -> list[str]:
    built = sum(math.prod(shape) for shape, _ in parameters.values())
    if stored.parameters == built:
        return []
    more = "more" if stored.parameters > built else "fewer"
    mine, theirs = (stored.entries, parameters) if more == "more" else (parameters, stored.entries)
    only = [name for name in mine if name not in theirs]
    names = f", such as {only[0]}" if only and len(only) < len(mine) else ""
    return [
        f"the checkpoint holds {stored.parameters:,} values, the model {built:,}:"
        f" {abs(stored.parameters - built):,} {more} are stored{names}"
    ]


def _dtype_line(stored: StoredWeights, parameters: Mapping[str, StoredTensor]) -> list[str]:
    built: Counter[str] = Counter()
    for shape, dtype in parameters.values():
        built[dtype.removeprefix("torch.")] += math.prod(shape)
    if set(stored.by_dtype) == set(built) or not built:
        return []
    return [f"the checkpoint is stored as {_shares(stored.by_dtype)}, the model is built as {_shares(built)}"]


def _shares(elements: Mapping[str, int]) -> str:
    """`bfloat16` where it is all, `bfloat16 (99.9 %) and float32` where it is most."""
    ranked = sorted(elements.items(), key=lambda item: -item[1])
    if len(ranked) == 1:
        return ranked[0][0]
    share = 100 * ranked[0][1] / max(1, sum(elements.values()))
    return f"{ranked[0][0]} ({min(share, 99.9):.1f} %) and {', '.join(name for name, _ in ranked[1:])}"


def _shape_lines(stored: StoredWeights, parameters: Mapping[str, StoredTensor]) -> list[str]:
    lines = []
    for name, (shape, _) in parameters.items():
        found = stored.entries.get(name)
        if found is not None and found[0] != tuple(shape):
            lines.append(f"{name} is {list(found[0])} in the checkpoint and {list(shape)} in the model")
    return lines if len(lines) <= 3 else [*lines[:2], f"{len(lines) - 2} more tensors differ in shape"]
