"""A few values that stay in memory between questions. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")
_MOST = 4


class Recent(Generic[V]):
    """The last few values that were asked for, by key; the least recently used is forgotten."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of `key`, made where it is not kept."""
        found = self._kept.pop(key) if key in self._kept else make()
        self._kept[key] = found
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return found

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    @property
    def newest(self) -> V:
        """What was asked for last; KeyError where nothing was."""
        return self._kept[next(reversed(self._kept))]
