"""What a job document says, as values."""

from dataclasses import dataclass, replace
from enum import StrEnum

from gpu_plan.planner.options.recipe.engine import EngineGiven
from gpu_plan.planner.units import ceil_div

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
    SHARED = "shared"
    """Its own and a value head beside it on one trunk: a policy that is its own critic, as TRL's PPO had it."""

    @property
    def speaks(self) -> bool:
        """Whether it still gives words."""
        return self in (Head.OWN, Head.SHARED)


class Between(StrEnum):
    """Where a model lies while it does not compute."""

    DEVICE = "device"
    HOST = "host"
    """Whole: its weights are brought for every phase in which it computes, optimizer state and gradients to train."""
    WEIGHTS = "weights"
    """Its weights stay on the device; gradients and optimizer state lie on the host, and are brought to train."""
    GRADIENTS = "gradients"
    """Its weights and gradients stay; what the optimizer keeps lies on the host, and is brought to train."""
    OPTIMIZER = "optimizer"
    """What the optimizer keeps stays; weights and gradients lie on the host until they are needed."""


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
    flat: bool = False
    """Whether the optimizer is given FSDP1's flat parameters, whose gradients zero_grad drops."""
    frozen_adapters: int = 0
    """Adapters beside the trained one that are switched to and never trained."""
    megatron: tuple[str, ...] = ()
    """Words of `--set` about Megatron-core's own loop."""
    reduced: str | None = None
    """Type in which FSDP reduces its gradients, as `--set dtype.reduce` names it; None: that of the gradients."""

    @property
    def settings(self) -> tuple[str, ...]:
        """Words of `--set` that the document gives it."""
        loss = () if self.loss is None else (f"loss.variant={self.loss}",)
        syncs = ("fsdp.sync_each_batch=true",) if self.syncs else ()
        reduced = () if self.reduced is None else (f"dtype.reduce={self.reduced}",)
        beside = (f"lora.beside={self.frozen_adapters}",) if self.frozen_adapters else ()
        flat = ("fsdp.use_orig_params=false",) if self.flat else ()
        return (*loss, *syncs, *flat, *reduced, *beside, *self.megatron)

    def word(self, name: str) -> str | None:
        """Value of one of its options."""
        return dict(self.words).get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutByTokens:
    """A rank's samples, cut into as many passes as their tokens need, each of about as many.

    verl/utils/seqlen_balancing.py: rearrange_micro_batches, which a sample more than the cap does not stop.
    """

    max_tokens: int
    samples: int
    """Of a rank, that are cut."""

    def passes(self, seq_len: int) -> int:
        """Of samples of so many tokens each."""
        return min(self.samples, ceil_div(self.samples * seq_len, self.max_tokens))

    def rows(self, seq_len: int) -> int:
        """Samples of the largest pass."""
        return ceil_div(self.samples, self.passes(seq_len))


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
    cut: "CutByTokens | None" = None
    """How passes are made of more samples; None: `micro_batch` says it."""

    def shortened(self, prompt_len: int, completion_len: int) -> "PhaseGiven":
        """The same with samples of other lengths."""
        rows = self.micro_batch if self.cut is None else self.cut.rows(prompt_len + completion_len)
        return replace(self, prompt_len=prompt_len, completion_len=completion_len, micro_batch=rows)

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
    lengths: tuple[int, int]
    """Tokens of prompt and completion of phases that say nothing else."""
    padding_removed: bool = False
    """Whether passes hold the samples' own tokens alone, of which the lengths are the most."""
    expands: bool = False
    """Whether segments of CUDA's allocator grow."""
    usual: tuple[int, int] | None = None
    """Tokens of prompt and completion of an average sample; None where nobody says."""

    def shortened(self, lengths: tuple[int, int]) -> "JobGiven":
        """The same job with samples of these lengths, and of phases with lengths of their own in proportion.

        What generates keeps room for the longest.
        """
        share = lengths[0] / self.lengths[0], lengths[1] / self.lengths[1]

        def shorter(phase: PhaseGiven) -> PhaseGiven:
            if phase.does in (Does.GENERATE, Does.SYNC):
                return phase
            own = (max(1, round(phase.prompt_len * share[0])), max(1, round(phase.completion_len * share[1])))
            return phase.shortened(*own)

        return replace(self, phases=tuple(shorter(phase) for phase in self.phases), lengths=lengths)

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
