"""Seconds of host and device under the bounds of their rates."""

from collections.abc import Callable, Sequence

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds under one bound of every rate."""

    host: FloatArray
    """That the host takes to issue each kernel of a pass, [kernels]."""
    device: FloatArray
    """That each of them runs, [kernels]."""
    hook: float
    """That the host takes to issue one operator of a collective's hooks."""
    many_hooks: bool
    """Whether hooks issue as many operators as they may, or as few."""
    sent: Callable[[str, int], float]
    """Of a collective by its kind and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """What bounds the host's lead from both sides; each with links between devices that are slow, and fast."""

    least: Sequence[Pace]
    """A slow host beside a fast device."""
    most: Sequence[Pace]
    """A fast host beside a slow device."""
