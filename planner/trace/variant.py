"""Which step is recorded: everything that changes the stream, and nothing that does not."""

from typing import Literal, Protocol

from gpu_plan.planner.context.split import SequenceSplit
from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.megatron.part import Part as MegatronPart
from gpu_plan.planner.model.adapter import BESIDE
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.workload.stacks.registry import Part, Stack, part_of
from gpu_plan.planner.workload.training import Attention, Checkpointing


class Stored(Protocol):
    """What a model's parameters and a trace's have in common."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def trainable(self) -> bool: ...


UPCAST = "float32"
"""dtype of frozen parameters that a stack keeps wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """In what types one rank computes."""

    weights: str
    """dtype of the parameters as forward sees them (`float32`, `bfloat16`, `float16`)."""
    trainable_weights: str | None = None
    """The same for trainable parameters, where it differs: adapters around a frozen base."""
    upcast: tuple[Part, ...] = ()
    """Kinds of frozen parameters that are fp32 all the same."""
    autocast: str | None = None
    """16-bit dtype of the autocast region around forward, if there is one."""
    outputs_to_fp32: bool = False
    """Whether the outputs are converted to fp32 (accelerate accelerator.py: prepare_model, native amp)."""
    buffers_follow: bool = False
    """Whether floating-point buffers are cast with the parameters (DeepSpeed's module.bfloat16())."""
    adapters_seen: str | None = None
    """dtype that peft finds in adapters and casts their inputs to, where they compute in another: FSDP1's shards."""

    float8: Literal["", "cast", "gathered", "te"] = ""
    """Whether linear layers compute in float8: torchao's, their weights cast at each use or gathered by FSDP2 as
    float8, or Transformer Engine's."""

    experts_take: str | None = None
    """16-bit dtype into which FSDP2 casts what experts take that are a unit of their own."""

    ties_apart: bool = False
    """Whether tied weights are gathered and get gradients apart: FSDP2 wrapped the model before they were tied."""

    zero_linear: bool = False
    """Whether linear layers run DeepSpeed's function, which keeps the inputs of frozen ones, too."""

    @property
    def trained(self) -> str:
        """dtype of the trainable parameters."""
        return self.trainable_weights or self.weights

    def dtype_of(self, dtype: str, *, trainable: bool, name: str = "", dims: int = 2) -> str:
        """dtype under this regime of a parameter that is now of `dtype`; packed integers stay what they are.

        `name` and `dims`, the number of its dimensions, tell the kinds of frozen parameters apart.
        """
        if not is_floating(dtype):
            return dtype
        if trainable or BESIDE in name:
            return self.trained
        return UPCAST if self.upcast and part_of(name, dims) in self.upcast else self.weights

    def of(self, parameter: Stored) -> str:
        """dtype under this regime of a parameter of a model or of a trace."""
        return self.dtype_of(
            parameter.dtype, trainable=parameter.trainable, name=parameter.name, dims=len(parameter.shape)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """How torch.compile is called."""

    backend: Literal["inductor", "aot_eager"] = "inductor"
    regions: Literal["model", "regional", "blocks"] = "model"
    """The model as one graph; each block and whatever else there is, as accelerate's compile_regions has it; or the
    blocks alone."""
    names: tuple[str, ...] = ()
    """Modules that are compiled one by one, whatever `regions` says; empty otherwise."""

    def key(self) -> str:
        return f"{self.backend}/{'+'.join(self.names) or self.regions}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVariant:
    """One way to run the step on a model that is given elsewhere."""

    regime: Regime
    checkpointing: Checkpointing
    attention: Attention
    stack: Stack
    seq_len: int
    checkpoints_on_host: bool = False
    """Whether the inputs of checkpointed layers wait in host memory."""
    checkpoint_every: int = 1
    """Of the layers that can be checkpointed, each such one is."""
    checkpoint_reentrant: bool = False
    """Whether torch's reentrant checkpoints are used (torch/utils/checkpoint.py: CheckpointFunction)."""
    fused: tuple[str, ...] = ()
    """Liger's kernels in place of the model's own: `layers`, `loss`, both or none."""
    loss: str = "installed"
    """Whose loss: the installed transformers', or an older one (`gpu_plan.planner.trace.setup.loss_variants`)."""
    padding: str = "none"
    """How samples are padded: see `gpu_plan.planner.trace.inputs.padding`."""

    evaluation: Literal["", "loss", "logits", "forward", "log-probabilities"] = ""
    """Whether the pass is one of an evaluation, without gradients, and what the stack keeps of it; or one of a job of
    several models, without a cache: its outputs, or with the model's loss of them."""
    compilation: Compilation | None = None
    """None: the step runs as it is written."""
    tensor_parallel: int = 1
    """Ranks that compute one copy of the model together; the step of the first of them is recorded."""
    expert_parallel: int = 1
    """Ranks that hold whole experts each and send each other their tokens."""
    rank: int = 0
    """Which of the ranks that compute a copy together: where they cannot share it out evenly, their steps differ."""
    crowded: bool = False
    """Whether as many tokens as the code allows choose this rank's experts, instead of as many as any other's."""
    stage: StageCut | None = None
    """The stage of a pipeline whose forward and backward are recorded; None: the whole model's."""
    halves: bool = False
    """Whether the stage's backward is split: the gradient that is sent back first, those of its weights later."""
    split: SequenceSplit | None = None
    """Whose share of every sample's tokens the rank computes; None: all of them."""
    part: MegatronPart | None = None
    """What of a model of Megatron-core's own the rank computes; None: the model is its library's."""

    @property
    def spread(self) -> int:
        """Ranks that a rank's own step belongs together with; 1 where it holds the whole model."""
        return max(self.tensor_parallel, self.expert_parallel)

    @property
    def cuts_sequence(self) -> bool:
        """Whether ranks that compute one copy share out the sequence between a layer's products."""
        return self.tensor_parallel > 1 and self.stage is None and self.stack.traits.cuts_sequence

    @property
    def own_length(self) -> int:
        """Tokens of each sample that the rank computes."""
        return self.seq_len if self.split is None else self.seq_len // self.split.degree

    def key(self) -> str:
        """Stable text that names the variant in caches and messages."""
        regime = self.regime
        trained = "" if regime.trainable_weights is None else f" trained={regime.trainable_weights}"
        trained += "" if regime.adapters_seen is None else f" seen={regime.adapters_seen}"
        trained += f" fp32={'+'.join(regime.upcast)}" if regime.upcast else ""
        float8 = f" float8={regime.float8}" if regime.float8 else ""
        float8 += " linear=deepspeed" if regime.zero_linear else ""
        float8 += " ties=apart" if regime.ties_apart else ""
        float8 += f" experts={regime.experts_take}" if regime.experts_take else ""
        every = "" if self.checkpoint_every == 1 else f" every={self.checkpoint_every}"
        every += " inputs=host" if self.checkpoints_on_host else ""
        every += " reentrant" if self.checkpoint_reentrant else ""
        fused = f" liger={'+'.join(self.fused)}" if self.fused else ""
        fused += "" if self.loss == "installed" else f" loss={self.loss}"
        fused += "" if self.padding == "none" else f" padding={self.padding}"
        fused += f" evaluation={self.evaluation}" if self.evaluation else ""
        fused += "" if self.compilation is None else f" compile={self.compilation.key()}"
        fused += "" if self.tensor_parallel == 1 else f" tp={self.tensor_parallel}"
        fused += "" if self.expert_parallel == 1 else f" ep={self.expert_parallel}"
        fused += "" if self.rank == 0 else f" rank={self.rank}"
        fused += " crowded" if self.crowded else ""
        fused += "" if self.stage is None else f" stage={self.stage.key()}"
        fused += " halves" if self.halves else ""
        fused += "" if self.split is None else f" cp={self.split.key()}"
        fused += "" if self.part is None else f" megatron={self.part.key()}"
        return (
            f"weights={regime.weights}{trained}{float8} autocast={regime.autocast} out32={regime.outputs_to_fp32} "
            f"buffers={regime.buffers_follow} checkpointing={self.checkpointing}{every} attention={self.attention} "
            f"stack={self.stack} seq={self.seq_len}{fused}"
        )


def shared_out(variant: StepVariant) -> str | None:
    """In words, how several ranks share one copy of the model; None where each computes all of it."""
    if variant.split is not None:
        return f"samples shared out over {variant.split.degree} GPUs (--cp {variant.split.degree})"
    if variant.stage is not None or variant.part is not None:
        return "a model cut into stages or parts (--pp, --strategy megatron)"
    if variant.spread > 1:
        option = "--tp" if variant.tensor_parallel > 1 else "--ep"
        return f"a model shared out over {variant.spread} GPUs ({option} {variant.spread})"
    return None


def is_one_graph(variant: StepVariant) -> bool:
    """Whether the whole model is compiled as one: its blocks cannot be told apart, nor some left out."""
    compilation = variant.compilation
    return compilation is not None and compilation.regions == "model" and not compilation.names
