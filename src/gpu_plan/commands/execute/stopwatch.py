"""Seconds that pass before a run, by what they are spent on."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_plan.executor.records.run import Phase


class Stopwatch:
    """Begins with its making."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._at = clock, clock()
        self._spent: list[tuple[str, float]] = []

    def ended(self, name: str) -> None:
        """What went on until now since the last call."""
        now = self._clock()
        self._spent.append((name, now - self._at))
        self._at = now

    @property
    def phases(self) -> "tuple[Phase, ...]":
        from gpu_plan.executor.records.run import Phase

        return tuple(Phase(name=name, seconds=seconds) for name, seconds in self._spent)
