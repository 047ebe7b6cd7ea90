"""What traces have in common is read and held once, for as long as one of them is there.

Traces of one model repeat each other: of as many layers, modules and parameters are the same, and most columns.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from gpu_plan.planner.trace.events import FloatArray, IntArray

T = TypeVar("T")
C = TypeVar("C", IntArray, FloatArray)
Key = tuple[object, ...]
"""What decides a value, all but certainly: digests stand for bytes."""


class Row(list[T]):
    """A list that is held weakly; nobody changes it."""

    __slots__ = ("__weakref__",)


_columns: "WeakValueDictionary[Key, Any]" = WeakValueDictionary()
_rows: "WeakValueDictionary[Key, Row[Any]]" = WeakValueDictionary()


def digest(content: bytes) -> bytes:
    """Stands for some bytes in a key."""
    return sha256(content).digest()


def common_column(key: Key, make: Callable[[], C]) -> C:
    """The column of a key, made where no trace holds it; nobody may write to it."""
    found: C | None = _columns.get(key)
    if found is None:
        found = _columns[key] = make()
        found.flags.writeable = False
    return found


def known_row(key: Key) -> list[Any] | None:
    """The list of a key, where somebody holds it."""
    return _rows.get(key)


def common_row(key: Key, make: Callable[[], list[T]]) -> list[T]:
    """As `common_column`, of a list."""
    found = _rows.get(key)
    if found is None:
        found = _rows[key] = Row(make())
    return found
