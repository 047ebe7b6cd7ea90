"""The timeline of one training step: what stands on the worst rank's device, event by event. Plain values."""

from collections.abc import Mapping

from gpu_plan.planner.plain.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One allocation or free, and what stands after it; bytes."""

    phase: str
    category: str
    module: str
    operator: str
    change: int
    """Of the block taken (positive) or given back (negative)."""
    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The iteration in which allocated memory peaks, or the first that follows where loading does."""

    title: str
    iteration: int
    start: Mapping[str, int]
    """Bytes by category as the iteration begins."""
    start_reserved: int
    moments: tuple[Moment, ...]
    peak: int
    """Index of the moment at which most is allocated."""
    capacity: int
    """Device memory that one process may take; bytes."""
    dies: bool = False
    """Whether the run ends here because the next request finds no room."""

    def levels(self) -> list[tuple[int, ...]]:
        """Bytes after each event, by category in the order of `start`."""
        standing = dict(self.start)
        found = []
        for moment in self.moments:
            standing[moment.category] += moment.change
            found.append(tuple(standing.values()))
        return found
