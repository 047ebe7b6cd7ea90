"""What is said about a job of several models: each model on one device, and the phases that repeat.

These stand in optional fields of a plan's candidate, of a recipe (`RecipeFigures`) and of a job document
(`SeveralFigures`); a plan of a job of one model by name has none of them.
"""

from gpu_plan.planner.plain.values import dataclass


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
class EngineFigures:
    """An engine beside a trainer; bytes of one of its ranks."""

    mode: str
    """`colocate`: on the GPUs that train; `server`: on GPUs of its own."""
    version: str
    """The release whose rules these are."""
    title: str = "vLLM"
    """As it writes itself."""
    gpus: int
    """Devices that it takes: all that train, or those of its own."""
    tensor_parallel: int
    share: float
    """Of each of its devices."""
    sleeps: bool
    requested_bytes: int
    """The share in bytes: weights, cache, graphs and what a batch takes."""
    weight_bytes: int
    cache_bytes: int
    """Of its blocks, all of them."""
    blocks: int
    cache_tokens: int
    concurrency: float
    """Requests of prompt and completion that one copy holds at once."""
    update_bytes: int
    """What it holds of a training device while the update runs; 0 for a server."""
    rollout_seconds: float
    """Reading weights and cache for every token of a step's completions: no engine is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFigures:
    """A job of several models under one plan."""

    recipe: str
    trainer: str
    """TRL's class, whose own code was traced."""
    reference: str | None
    """`none`, `kept`, `adapters` or `precomputed`; None where the recipe has none."""
    prompt_len: int
    completion_len: int
    models: tuple[JobModel, ...]
    phases: tuple[JobPhase, ...]
    worst_phase: str
    """The phase with the highest peak: it decides."""
    generations: int = 1
    """Completions of each prompt."""
    engine: EngineFigures | None = None
    """What generates, where it is none of the models."""

    def __post_init__(self) -> None:
        if self.worst_phase not in {phase.name for phase in self.phases}:
            raise ValueError(f"worst_phase {self.worst_phase!r} is none of the phases")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedModel:
    """One of the job's models; bytes of the rank that is judged."""

    role: str
    """Its name in the document."""
    model: str
    """As it was named: an id, a folder, a factory."""
    parameters: int
    """Elements of the whole model."""
    trained: bool
    dtype: str
    """Of most of its parameters as they stand on the device."""
    spread: str
    """Strategy and offload in words."""
    between: str
    """`device` or `host`: where it lies while it does not compute; `weights`: these here, all else on the host;
    `server`: on devices of its own."""
    rest_bytes: int
    """What it holds of the device, or of the host, between its phases."""
    at_peak_bytes: int
    """What of it stands on the device at the job's peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShare:
    """What of one model stands at the peak of a phase."""

    role: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeak:
    """One phase, and how much stands on the device at most while it runs."""

    name: str
    does: str
    roles: tuple[str, ...]
    """Models that compute in it."""
    repeats: str
    peak_bytes: int
    by_model: tuple[ModelShare, ...]
    """Sums to `peak_bytes`."""
    seconds: float | None = None
    """For the samples of one update, moves between host and device included; None where it is not known."""
    seconds_low: float | None = None
    seconds_high: float | None = None
    moving_seconds: float = 0.0
    """Of them, what comes from the host and goes there."""
    at_least: bool = False
    """Whether nothing says how much longer it takes: an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralFigures:
    """A job of several models under one plan."""

    job: str
    models: tuple[PlacedModel, ...]
    phases: tuple[PhasePeak, ...]
    worst_phase: str
    """The phase with the highest peak: it decides."""
    seconds: float | None = None
    """Of all phases, one after the other, for one update of the first trained model."""
    seconds_low: float | None = None
    seconds_high: float | None = None
    longest_phase: str | None = None
    """The phase that takes longest."""
    seconds_basis: str | None = None

    def __post_init__(self) -> None:
        if self.worst_phase not in {phase.name for phase in self.phases}:
            raise ValueError(f"worst_phase {self.worst_phase!r} is none of the phases")
