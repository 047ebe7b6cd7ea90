"""What a rank of a trial launch writes of itself, and reads of the other side; standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

OUT = "GPU_PLAN_TRIAL_OUT"
"""Folder in which each rank writes its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """One thing that was tried."""

    name: str
    passed: bool | None
    """None where this backend or strategy cannot do it."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One collective at one size."""

    collective: str
    bytes: int
    """Of the whole tensor, as on one rank before or after."""
    seconds: float
    """Median of several rounds."""

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """The whole of a rank's file."""

    rank: int
    world_size: int
    pid: int
    device: str
    device_id: str
    """Tells GPUs apart: the UUID; on a CPU the process."""
    backend: str
    distributed_type: str
    mixed_precision: str
    wrapped: str
    """Class around the model."""
    tests: tuple[Tested, ...]
    speeds: tuple[Speed, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
