"""What a GGUF file's header says: its tensors, their types and sizes. Tensor data is never read.

The format is llama.cpp's (ggml-org/llama.cpp gguf-py/gguf/constants.py and gguf-py/gguf/gguf_reader.py): magic,
version, two counts, key-value pairs, one entry per tensor, padding, data. All is little endian.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.foreign.files import open_regular
from gpu_plan.planner.model.config_reader import shown
from gpu_plan.planner.model.source.headers import ReadAt
from gpu_plan.planner.units import ceil_div, round_up

MAX_HEADER = 200_000_000
"""Bytes; vocabularies with their merges take some ten million."""
MAX_ENTRIES = 200_000
MAX_NAME = 65_535
"""Bytes of a key, as the format has it."""
MAX_DIMENSIONS = 4
"""ggml.h: GGML_MAX_DIMS."""
MAX_TEXTS = 5_000_000
"""Of one array; vocabularies have up to half a million words and as many merges."""
VERSIONS = (2, 3)

TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
"""Number of a type: name, elements of a block, bytes of a block (constants.py: GGML_QUANT_SIZES)."""
PLAIN = ("F32", "F16", "BF16", "F64")
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One tensor as stored."""

    shape: tuple[int, ...]
    """In torch's order."""
    type: str
    """`Q4_K`, `F32`, ..."""
    bytes: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """A file's header."""

    architecture: str
    tensors: Mapping[str, GgufTensor]

    @property
    def bits_per_weight(self) -> float:
        """Bits of data per element, over all tensors."""
        elements = sum(tensor.numel for tensor in self.tensors.values())
        return 8 * sum(tensor.bytes for tensor in self.tensors.values()) / max(1, elements)


def read_gguf_file(path: Path) -> GgufFile:
    """The header of a file on this machine. UnreachableError where it cannot be read, InputError where it is none."""
    try:
        size = path.stat().st_size
        with open_regular(path) as file:

            def read(offset: int, length: int) -> bytes:
                file.seek(offset)
                return file.read(length)

            return read_gguf(read, size, str(path))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreachableError(f"{path} cannot be read: {reason}; name a GGUF file that is there") from None


def read_gguf(read: ReadAt, size: int, where: str) -> GgufFile:
    """The header that `read` gives; `size` is the file's length in bytes.

    InputError in one line where it is truncated, oversized, of another version, or disagrees with the file.
    """
    cursor = _Cursor(read, min(size, MAX_HEADER), where)
    if cursor.take(4) != b"GGUF":
        raise _corrupt(where, "it does not begin with GGUF")
    version, tensors, pairs = cursor.unpack("<IQQ")
    if version not in VERSIONS:
        raise _corrupt(where, f"its version is {version}, 2 and 3 are known")
    if tensors > MAX_ENTRIES or pairs > MAX_ENTRIES:
        raise _corrupt(where, f"it claims {tensors:,} tensors and {pairs:,} keys")
    keys = dict(_pair(cursor) for _ in range(pairs))
    architecture, alignment = keys.get("general.architecture"), keys.get("general.alignment", 32)
    if not isinstance(architecture, str):
        raise _corrupt(where, "it names no general.architecture")
    if type(alignment) is not int or not 1 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise _corrupt(where, f"its alignment is {shown(alignment)}")
    entries = [_entry(cursor) for _ in range(tensors)]
    start = round_up(cursor.at, alignment)
    found: dict[str, GgufTensor] = {}
    for name, tensor, offset in entries:
        if name in found:
            raise _corrupt(where, f"tensor {shown(name)} stands in it twice")
        if offset % alignment or start + offset + tensor.bytes > size:
            raise _corrupt(where, f"tensor {shown(name)} lies beyond the file's {size:,} bytes")
        found[name] = tensor
    return GgufFile(architecture=architecture, tensors=found)


class _Cursor:
    """Reads forward through a header that must end before `limit`."""

    def __init__(self, read: ReadAt, limit: int, where: str) -> None:
        self._read, self._limit, self.where = read, limit, where
        self._block, self._block_at = b"", 0
        self.at = 0

    def take(self, length: int) -> bytes:
        """The next bytes; InputError beyond the limit."""
        if length > self._limit - self.at:
            raise _corrupt(self.where, "its header is cut off, or claims more than the file has")
        begin = self.at - self._block_at
        if begin + length > len(self._block):
            self._block, self._block_at, begin = self._read(self.at, max(length, 2**20)), self.at, 0
            if len(self._block) < length:
                raise _corrupt(self.where, "its header is cut off")
        self.at += length
        return self._block[begin : begin + length]

    def skip(self, length: int) -> None:
        """Passes over bytes without reading them."""
        if length > self._limit - self.at:
            raise _corrupt(self.where, "its header is cut off, or claims more than the file has")
        self.at += length
        if not 0 <= self.at - self._block_at <= len(self._block):
            self._block, self._block_at = b"", self.at

    def unpack(self, layout: str) -> tuple[int, ...]:
        """Numbers."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def text(self) -> str:
        """A name: its length, then UTF-8."""
        (length,) = self.unpack("<Q")
        if length > MAX_NAME:
            raise _corrupt(self.where, f"a name in it claims {length:,} bytes")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise _corrupt(self.where, "a name in it is not UTF-8") from None


def _pair(cursor: _Cursor) -> tuple[str, object]:
    key = cursor.text()
    (kind,) = cursor.unpack("<I")
    return key, _value(cursor, kind, wanted=key in ("general.architecture", "general.alignment"))


def _value(cursor: _Cursor, kind: int, *, wanted: bool) -> object:
    if kind in _SCALARS:
        return cursor.unpack(_SCALARS[kind])[0]
    if kind == _STRING:
        if wanted:
            return cursor.text()
        cursor.skip(cursor.unpack("<Q")[0])
        return None
    if kind != _ARRAY:
        raise _corrupt(cursor.where, f"a value in it has the unknown type {kind}")
    inner, count = cursor.unpack("<IQ")
    if inner in _SCALARS:
        cursor.skip(count * struct.calcsize(_SCALARS[inner]))
    elif inner == _STRING:
        if count > MAX_TEXTS:
            raise _corrupt(cursor.where, f"an array in it claims {count:,} texts")
        for _ in range(count):
            cursor.skip(cursor.unpack("<Q")[0])
    else:
        raise _corrupt(cursor.where, f"an array in it holds the type {inner}")
    return None


def _entry(cursor: _Cursor) -> tuple[str, GgufTensor, int]:
    name = cursor.text()
    (dimensions,) = cursor.unpack("<I")
    if dimensions > MAX_DIMENSIONS:
        raise _corrupt(cursor.where, f"tensor {shown(name)} has {dimensions} dimensions")
    shape = tuple(reversed(cursor.unpack(f"<{dimensions}Q"))) if dimensions else ()
    kind, offset = cursor.unpack("<IQ")
    if kind not in TYPES:
        raise _corrupt(cursor.where, f"tensor {shown(name)} has the unknown type {kind}")
    label, block, size = TYPES[kind]
    if math.prod(shape) >= 2**63 or (shape and shape[-1] % block):
        raise _corrupt(cursor.where, f"tensor {shown(name)} has no valid shape for {label}")
    return name, GgufTensor(shape=shape, type=label, bytes=ceil_div(math.prod(shape), block) * size), offset


def _corrupt(where: str, why: str) -> InputError:
    return InputError(f"{where} is not a usable GGUF file: {why}; fetch it again")
