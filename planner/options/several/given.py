"""What a job document says, as values."""

from dataclasses import dataclass
from enum import StrEnum

from gpu_plan.planner.options.recipe.engine import EngineGiven

SUFFIX = ".toml"


class Does(StrEnum):
    """What a model does in a phase."""

    TRAIN = "train"
    """Forward, backward and the optimizer's step."""
    FORWARD = "forward"
    """A forward pass without gradients: its outputs stand until the pass is over."""
    LOG_PROBABILITIES = "log-probabilities"
    """The same with the model's own loss, whose log-softmax is what log-probabilities are made of."""
    GENERATE = "generate"
    """Prompts are completed."""
    SYNC = "sync"
    """Weights are written into an engine."""


class Head(StrEnum):
    """What a model ends in."""

    OWN = "own"
    """As its configuration says."""
    VALUE = "value"
    """One number for each token: a critic."""
    REWARD = "reward"
    """One number for each sample: a reward model."""


class Between(StrEnum):
    """Where a model lies while it does not compute."""

    DEVICE = "device"
    HOST = "host"
    """Whole, and brought for every phase in which it computes."""
    WEIGHTS = "weights"
    """Its weights stay on the device; gradients and optimizer state lie on the host, and are brought to train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGiven:
    """One model of a document."""

    role: str
    """Its name in the document."""
    model: str
    """As MODEL names it."""
    trains: bool
    head: Head = Head.OWN
    between: Between = Between.DEVICE
    engine: EngineGiven | None = None
    """An engine, which generates with this model's weights; None: transformers runs it."""
    words: tuple[tuple[str, str], ...] = ()
    """Options of the command line that the document gives it: precision, strategy, offload, ..."""
    loss: str | None = None
    """Whose loss it computes, as `--set loss.variant` names it; None: its own."""
    syncs: bool = False
    """Whether FSDP reduces its gradients in every micro step."""

    @property
    def settings(self) -> tuple[str, ...]:
        """Words of `--set` that the document gives it."""
        loss = () if self.loss is None else (f"loss.variant={self.loss}",)
        return (*loss, *(("fsdp.sync_each_batch=true",) if self.syncs else ()))

    def word(self, name: str) -> str | None:
        """Value of one of its options."""
        return dict(self.words).get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseGiven:
    """One phase of a document."""

    name: str
    does: Does
    roles: tuple[str, ...]
    """Models that compute in it, one after the other."""
    micro_batch: int | None
    """Samples of one pass; None: as the update takes them."""
    prompt_len: int
    completion_len: int
    every: int = 1
    """Of how many steps it is in one."""

    @property
    def repeats(self) -> str:
        """`every step`, or `every N steps`."""
        return "every step" if self.every == 1 else f"every {self.every} steps"

    @property
    def seq_len(self) -> int:
        """Tokens of a sample."""
        return self.prompt_len + self.completion_len


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGiven:
    """A document."""

    name: str
    models: tuple[ModelGiven, ...]
    """The first that is trained stands first: it is the one whose strategy and batch are searched."""
    phases: tuple[PhaseGiven, ...]

    @property
    def anchor(self) -> ModelGiven:
        """The model that is searched."""
        return self.models[0]

    @property
    def update(self) -> PhaseGiven:
        """The phase that trains it."""
        return next(phase for phase in self.phases if phase.does is Does.TRAIN and self.anchor.role in phase.roles)

    @property
    def engine(self) -> ModelGiven | None:
        """The model that an engine runs."""
        return next((one for one in self.models if one.engine is not None), None)

    def of(self, role: str) -> ModelGiven:
        """A model by its name."""
        return next(one for one in self.models if one.role == role)
