"""One tensor of optimizer state."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """A tensor that an optimizer keeps for a parameter."""

    label: str
    nbytes: int
    managed: bool = False
    """Whether it lies in CUDA managed memory, which the allocator does not see and the driver moves to the host."""
