"""What is said of candidates that were found, begun by another process while this one looks on (I/O)."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Self

from gpu_plan.planner.search.aside.forked import Aside, beside


class Telling:
    """Open as long as somebody may ask; on leaving no process of it is left."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._aside = Aside()
        self._parts: dict[int, tuple[int, object]] = {}
        """By identity: the number of a candidate, and the candidate, so that no other is taken for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def begin(self, ones: Sequence[object], work: Callable[[int], object]) -> None:
        """`work` of each, by its place, on a core that nobody else wants. Once: what comes later is told by whoever
        asks."""
        if not self._parts and len(ones) > 1:
            self._parts = {id(one): (place, one) for place, one in enumerate(ones)}
            groups = [(place,) for place in range(len(ones))]
            self._aside = self._open.enter_context(beside(groups, work, patient=True))

    def knows(self, one: object) -> bool:
        """Whether it was begun with that."""
        return id(one) in self._parts

    def of(self, one: object) -> Any:
        """What is said of it, waited for where a process is at it; None: it is to be worked out here."""
        return self._aside.answer(self._parts[id(one)][0]) if self.knows(one) else None
