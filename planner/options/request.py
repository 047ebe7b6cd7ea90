"""What the main job is asked for, and what it gives."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from gpu_plan.planner.plain.values import dataclass

if TYPE_CHECKING:
    from gpu_plan.planner.plan.document import PlanDocument
    from gpu_plan.planner.plan.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for."""

    model: str
    gpus: str
    words: tuple[tuple[str, str], ...]
    """Job options given, by name without dashes."""
    settings: tuple[str, ...]
    pinned: bool
    explain: bool
    """Whether the largest tensors at the peak are named."""
    trust_remote_code: bool
    revision: str | None
    use_cache: bool
    command: str
    snapshot: bool = False
    """Whether the predicted memory snapshot is wanted; the search then runs, whatever was kept."""
    plot: bool = False
    """Whether the timeline of a step is wanted; the search then runs, whatever was kept."""
    timeline: bool = False
    """As `plot`, where there is one to be had: a CPU has no caching allocator that could be drawn."""
    schedule: bool = False
    """Whether the step is wanted as a trace of its streams; the search then runs, whatever was kept."""
    script_words: tuple[str, ...] = ()
    """Arguments of the training script that MODEL names, or `script`."""
    script: str | None = None
    """A training script that `model` is compared with."""
    suggest: bool = True
    """Whether the nearest change that would fit is looked for where nothing fits."""
    alternatives: bool = False
    """Whether what else could be done is looked for where a plan fits too, whatever it takes."""
    advise: bool = False
    """Whether what else could be done is told beside a plan that fits, as far as it costs little."""
    follow: bool = False
    """Whether the user's own code is followed: a script beyond its first step, for what it never gives back."""
    script_seconds: float | None = None
    """Processor time that a training script may take to its first step; None: the default."""
    standin: bool = False
    """Whether a training script's data sets and tokenizers that are not at hand are stood in for."""
    unwalled: bool = False
    """Whether a training script is executed where the machine offers no walls."""
    explained: int = 25
    """How many kinds of tensors are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the main job gives."""

    document: "PlanDocument"
    snapshot: Mapping[str, object] | None = None
    """Of the best plan or of the pinned configuration, as torch pickles it; None where not asked for, or where
    nothing fits."""
    timeline: "Timeline | None" = None
    """Of the same plan; None likewise."""
    schedule: Mapping[str, object] | None = None
    """The step of the same plan as a Chrome/Perfetto trace; None where not asked for, or where nothing fits."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Of a training script: lines of the user's files at which memory is decided, by what happens there."""
    widened: Mapping[str, int] = field(default_factory=dict)
    """Bytes that lines of the user's files convert to a wider type in a step, by line; only with `Request.follow`."""


Note = Callable[[str], None]
