"""Columns of a trace as few bytes: layers repeat, and written as steps from one entry to the next they repeat exactly.

Numbers of tensors, modules and operators grow from layer to layer, each kind in its own rhythm: kinds are written one
after the other, as differences. Bytes are written plane by plane, the low ones first.
"""

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gpu_plan.planner.trace.events import FloatArray, IntArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDTHS = (1, 2, 4, 8)


class CorruptColumnError(Exception):
    """The bytes are not those of a column."""


def packed(values: IntArray, groups: IntArray | None = None) -> bytes:
    """Differences of `values`, one group of entries after the other; without groups the values as they stand."""
    flat = np.ascontiguousarray(values, dtype=np.int64)
    if groups is not None:
        flat = np.diff(flat[np.argsort(groups, kind="stable")], prepend=0)
    low, high = (int(flat.min()), int(flat.max())) if len(flat) else (0, 0)
    width = next(width for width in _WIDTHS if -(1 << (8 * width - 1)) <= low and high < 1 << (8 * width - 1))
    planes = flat.astype(f"<i{width}").view(np.uint8).reshape(-1, width).T
    return bytes([width]) + planes.tobytes()


def unpacked(
    content: bytes, count: int, groups: IntArray | None = None, dtype: type[np.signedinteger[Any]] = np.int64
) -> IntArray:
    """What `packed` was given; CorruptColumnError where there is no such column of `count` entries that fit."""
    width = content[0] if content else 0
    if width not in _WIDTHS or len(content) != 1 + width * count:
        raise CorruptColumnError("a column has another length")
    planes = np.frombuffer(content, dtype=np.uint8, offset=1).reshape(width, count)
    values = np.ascontiguousarray(planes.T).view(f"<i{width}").reshape(count)
    if groups is None:
        return _fitting(values, dtype)
    if len(groups) and groups.min() >= 0 and groups.max() < 1 << 15:
        groups = groups.astype(np.int16)  # which numpy sorts by radix, in a tenth of the time
    sums = _fitting(np.cumsum(values, dtype=np.int64), dtype)
    found = np.empty_like(sums)
    found[np.argsort(groups, kind="stable")] = sums
    return found


def _fitting(values: "NDArray[np.signedinteger[Any]]", dtype: type[np.signedinteger[Any]]) -> IntArray:
    """The same numbers as that type; CorruptColumnError where one does not fit."""
    found = values.astype(dtype, copy=False)
    if found.dtype.itemsize < values.dtype.itemsize and not np.array_equal(found, values):
        raise CorruptColumnError("a number of a column is too large")
    return cast("IntArray", found)


def unpacked_starts(content: bytes, count: int, dtype: type[np.signedinteger[Any]] = np.int64) -> IntArray:
    """Of rows whose lengths were `packed`: where each starts, and the end of all [count + 1]."""
    return _fitting(np.concatenate([[0], np.cumsum(unpacked(content, count), dtype=np.int64)]), dtype)


def packed_floats(values: FloatArray) -> bytes:
    """Floats, nearly always whole numbers: as integers where they are, else as their bits."""
    whole = bool(np.all(np.abs(values) < 2**62) and np.all(values == np.floor(values)))
    whole = whole and not bool(np.any(np.signbit(values) & (values == 0)))
    return bytes([whole]) + packed(values.astype(np.int64) if whole else values.view(np.int64))


def unpacked_floats(content: bytes, count: int) -> FloatArray:
    """What `packed_floats` was given."""
    if content[:1] not in (b"\0", b"\1"):
        raise CorruptColumnError("a column of floats begins otherwise")
    values = unpacked(content[1:], count)
    floats: NDArray[np.float64] = values.astype(np.float64) if content[0] else values.view(np.float64)
    return floats
