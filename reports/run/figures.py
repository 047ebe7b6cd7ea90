"""Figures of a run's report: one that was predicted and measured, and one rank's."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure, in bytes, seconds or per second."""

    name: str
    predicted: float | None = None
    low: float | None = None
    """Ends of the predicted interval, where it has one."""
    high: float | None = None
    measured: float | None = None
    comparable: bool = True
    """Whether both mean the same."""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None where that says nothing."""
        if not self.comparable or not self.predicted or self.measured is None:
            return None
        return self.measured / self.predicted

    @property
    def inside(self) -> bool | None:
        """Whether what was measured lies in the interval; None without one."""
        if not self.comparable or self.low is None or self.high is None or self.measured is None:
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLine:
    """One rank of the latest attempt."""

    rank: int
    device: str
    status: str
    steps: int
    peak_bytes: int | None
    """Allocated on CUDA; resident less base on CPU."""
    reserved_bytes: int | None
    device_used_bytes: int | None
    phases: dict[str, int]
    step_seconds: float | None
    last_loss: float | None
    error: str | None
    tokens_per_second: float | None = None
    """New ones, of a rank that runs prompts."""


def most(values: Iterable[int | float | None]) -> float | None:
    """The highest of those that are known."""
    return max((value for value in values if value is not None), default=None)
