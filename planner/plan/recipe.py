"""What is said about a job of several models: each model on one device, and the phases that repeat.

These stand in an optional field of a plan's candidate; a plan of a job of one model by name has none of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """One of the job's models; bytes of the rank that is judged."""

    role: str
    """`policy`, `reference`, `teacher`, ..."""
    parameters: int
    """Elements of the whole model."""
    trained: int
    """Of them with a gradient."""
    dtype: str
    """Of most of its parameters, as the trainer loads them."""
    at_peak_bytes: int
    """Parameters, gradients, state and activations of it that stand at the job's peak."""
    running_peak_bytes: int
    """Most that stands on the device while it computes, whatever it belongs to."""

    def __post_init__(self) -> None:
        if not 0 <= self.trained <= self.parameters:
            raise ValueError(f"{self.role}: {self.trained} trained parameters of {self.parameters}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPhase:
    """One phase: what runs in it, and how much stands on the device at most."""

    name: str
    roles: tuple[str, ...]
    """Models that compute in it."""
    repeats: str
    """`once`, or `every step`."""
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFigures:
    """A job of several models under one plan."""

    recipe: str
    trainer: str
    """TRL's class, whose own code was traced."""
    reference: str | None
    """`kept`, `adapters` or `precomputed`; None where none is asked."""
    prompt_len: int
    completion_len: int
    models: tuple[JobModel, ...]
    phases: tuple[JobPhase, ...]
    worst_phase: str
    """The phase with the highest peak: it decides."""

    def __post_init__(self) -> None:
        if self.worst_phase not in {phase.name for phase in self.phases}:
            raise ValueError(f"worst_phase {self.worst_phase!r} is none of the phases")
