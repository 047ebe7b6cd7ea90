"""What every strategy is given and gives back.

A strategy is a function from the traced step to the stream that the worst rank sees, with the host memory it
takes, the collectives it issues and the optimizer work it leaves to each rank.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.megatron.part import Part as MegatronPart
from gpu_plan.planner.memory.optimizer.steps import LocalTensor, Role
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.model import Collective, OptimizerWork
from gpu_plan.planner.strategy.traits import Offload, Traits
from gpu_plan.planner.trace.events import Category, IntArray, Kind, Mark, ParameterInfo, StepTrace
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.units import ceil_div
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.stacks.registry import PARTS, Part
from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Peft, Precision, Stack

MASTER = "float32"
"""dtype of masters, and of adapters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """One configuration, without the micro batch: streams are linear in that."""

    trace: StepTrace
    precision: Precision
    optimizer: Optimizer
    stack: Stack
    clipping: bool
    checkpointing: Checkpointing
    accumulation_steps: int
    world_size: int
    capability: tuple[int, int] | None
    """CUDA compute capability, None where there is no CUDA."""
    offload: Offload = Offload.NONE
    hidden_size: int | None = None
    """The model's hidden size, from which DeepSpeed's `auto` bucket sizes follow."""
    peft: Peft = NO_ADAPTERS
    replicate: int = 1
    """Groups of ranks that each hold one whole sharded copy (HSDP)."""
    nodes: int = 1
    tensor_parallel: int = 1
    """Ranks that compute one copy of the model together; `trace` is the step of one of them."""
    expert_parallel: int = 1
    """Ranks that hold whole experts each and send each other their tokens; `trace` is the step of one of them."""
    context_parallel: int = 1
    """Ranks that share the tokens of every sample; `trace` is the step of one of them."""
    pipeline: PipelineRank | None = None
    """The rank's place in a pipeline, where `trace` is of its stages; None: the model is not cut into stages."""
    part: MegatronPart | None = None
    """What of a library's own model the rank computes; None: the user's class runs."""
    place: int = 0
    """The rank, among those of its replica: a part that they cannot share out evenly is smaller on the last ones."""
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def shard_place(self) -> int:
        """The rank, among those that its parameters are sharded over."""
        return self.place // self.tensor_parallel

    @property
    def expert_place(self) -> int:
        """The rank, among those that hold the same experts."""
        return self.place // self.expert_parallel

    @property
    def expert_ranks(self) -> int:
        """Ranks that hold the same experts, which are sharded over them."""
        return self.world_size // self.replicate // self.expert_parallel

    @property
    def shard_ranks(self) -> int:
        """Ranks that the parameters of one rank's step are sharded over."""
        stages = 1 if self.pipeline is None else self.pipeline.ranks
        if self.part is not None:
            return self.world_size // self.part.layout.tensor // stages
        return self.world_size // self.replicate // self.tensor_parallel // stages

    def setting(self, key: str, default: str) -> str:
        """Value of a `--set` key, or `default`."""
        return dict(self.settings).get(key, default)

    @property
    def reduces_each(self) -> bool:
        """Whether FSDP reduces gradients in every micro step (accelerate: sync_each_batch of its accumulation)."""
        return self.setting("fsdp.sync_each_batch", "false") == "true"

    @property
    def original_parameters(self) -> bool:
        """Whether FSDP1 shows parameters as the model has them (use_orig_params)."""
        return self.setting("fsdp.use_orig_params", "true") == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """What one rank goes through."""

    stream: RankStream
    host_bytes: int = 0
    """Bytes of host memory that the strategy takes for this rank (pinned or not)."""
    nvme_bytes: int = 0
    """Bytes of this rank's files on its node's disk."""
    outside: tuple[Term, ...] = ()
    """What the strategy's runs take outside the allocator beside the context and NCCL."""
    chosen: tuple[tuple[str, str], ...] = ()
    """Settings, by `--set` key, that the strategy chose for the run, because the engine's own would end it."""
    failure_reason: str = ""
    """Why the run ends for another reason than memory; empty where it lives."""
    collectives: tuple[Collective, ...] = ()
    optimizer_work: OptimizerWork
    notes: tuple[str, ...] = ()
    other_ranks: tuple["RankPlan", ...] = ()
    """Other ranks, which peak higher than this one at some micro batches."""


class Strategy(Protocol):
    """One way to spread a training step over ranks."""

    @property
    def traits(self) -> Traits:
        """What everything but the replay reads of it."""
        ...

    @property
    def name(self) -> str:
        """Value of `--strategy`."""
        ...

    @property
    def title(self) -> str:
        """Name in the reasons of the search: `ZeRO-2`."""
        ...

    @property
    def offloads(self) -> tuple[Offload, ...]:
        """Kinds of offload that it knows."""
        ...

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
        """Types in which a rank computes under this strategy."""
        ...

    def refuses(self, context: RankContext) -> str | None:
        """Why this configuration makes no sense, or None."""
        ...

    def rank(self, context: RankContext) -> RankPlan:
        """The worst rank's plan."""
        ...

    def prepares(self, context: RankContext) -> Iterator[None]:
        """What takes longest of `rank`, before anybody asks: in pieces of a few milliseconds, and kept."""
        ...


def autocast_regime(precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
    """fp32 weights, forward under autocast when mixed; 16-bit weights alone when pure.

    accelerate accelerator.py: prepare_model wraps forward in autocast and converts outputs to fp32. Under LoRA the
    frozen base is loaded in the 16-bit type and peft makes the adapters fp32 (tuners_utils.py: cast_adapter_dtype,
    whatever the precision), unless the stack casts them; what of a frozen base is fp32 is the stack's affair, of a
    quantised one all that is not packed after prepare_model_for_kbit_training (utils/other.py).
    """
    frozen, trained, upcast = _held(precision, stack, peft)
    if precision.is_mixed:
        return Regime(
            weights=frozen,
            trainable_weights=trained,
            upcast=upcast,
            autocast=precision.compute_dtype,
            outputs_to_fp32=stack.traits.wraps_forward,
            float8="cast" if precision.is_float8 else "",
        )
    return Regime(weights=frozen, trainable_weights=trained, upcast=upcast)


def _held(precision: Precision, stack: Stack, peft: Peft) -> tuple[str, str | None, tuple[Part, ...]]:
    """dtypes of what is frozen, or of all where nothing is, and of adapters where it differs; kinds kept in fp32."""
    if not peft.adapts:
        return MASTER if precision.is_mixed else precision.compute_dtype, None, ()
    held, computed = stack.traits.held(quantised=peft.quantises), precision.compute_dtype
    if held.only_mixed and not precision.is_mixed:
        return computed, None, ()
    whole = held.wide == PARTS
    frozen = MASTER if whole else computed
    trained = MASTER if held.wide_adapters else computed
    upcast = () if whole or computed == MASTER else held.wide
    return frozen, None if trained == frozen else trained, upcast


def loaded_in(regime: Regime, dtype: str | None) -> Regime:
    """`regime` for a model that was loaded in `dtype` and stays so: autocast casts nothing that is 16-bit already.

    Only where nothing casts it on the way: accelerate upcasts what FSDP shards, DeepSpeed keeps fp32 masters.
    """
    return replace(regime, weights=dtype) if dtype else regime


def kept_wide(regime: Regime, word: str | None, precision: Precision) -> Regime:
    """`regime` with what `--set quant.upcast` keeps in fp32 of a quantised base; None: the stack's own."""
    if word is None:
        return regime
    weights = MASTER if word == "all" else precision.compute_dtype
    trained = None if regime.trained == weights else regime.trained
    return replace(regime, weights=weights, trainable_weights=trained, upcast=("norms",) if word == "norms" else ())


def replica_regime(context: RankContext) -> Regime:
    """Types of a rank that holds the whole model."""
    settings = dict(context.settings)
    regime = autocast_regime(context.precision, context.stack, context.peft)
    regime = kept_wide(regime, settings.get("quant.upcast"), context.precision)
    return loaded_in(regime, settings.get("dtype.params"))


def refuses_float8(context: RankContext) -> str | None:
    """For strategies under which torchao's float8 layers are not modelled."""
    return "float8 training with this strategy is not in this version" if context.precision.is_float8 else None


def nbytes(numel: int, dtype: str) -> int:
    """Bytes of `numel` elements."""
    return ceil_div(numel * element_bits(dtype), 8)


def nbytes_each(numel: IntArray, dtype: str) -> IntArray:
    """The same of many [tensors]."""
    return -(numel * -element_bits(dtype) // 8)


def undecayed(parameter: ParameterInfo) -> bool:
    """Whether transformers' Trainer steps it in its second group.

    trainer.py: create_optimizer, get_decay_parameter_names: biases and norms, taken here as everything with fewer than
    two dimensions.
    """
    return len(parameter.shape) <= 1


def whole_parameters(trace: StepTrace, dtype: str, *, two_groups: bool = False) -> list[LocalTensor]:
    """What the optimizer steps: trainable parameters, unsharded, in a dtype, where the step gives them a gradient.

    torch.optim passes over parameters whose `.grad` is None and makes no state for them. A trace without a step
    knows no gradients and counts all. `two_groups`: what gets no weight decay is stepped behind the others.
    """
    gradients = {int(index) for index in trace.subject[trace.kind == Kind.GRADIENT]}
    return [
        LocalTensor(
            name=parameter.name,
            numel=parameter.numel,
            dtype=dtype,
            shape=tuple(parameter.shape),
            role=parameter_role(trace, parameter),
            group=parameter.mesh,
            undecayed=two_groups and undecayed(parameter),
        )
        for index, parameter in enumerate(trace.parameters)
        if parameter.trainable and (not gradients or index in gradients)
    ]


def parameter_role(trace: StepTrace, parameter: ParameterInfo) -> Role:
    """What optimizers that treat embeddings on their own take a parameter for."""
    if parameter.module == trace.layout.input_embedding:
        return Role.EMBEDDING
    return Role.HEAD if parameter.module == trace.layout.output_embedding else Role.HIDDEN


def place_whole_model(builder: StreamBuilder, regime: Regime) -> None:
    """Every parameter and buffer on the device, for good."""
    place_weights(
        builder, [("weight", one.name, nbytes(one.numel, regime.of(one))) for one in builder.trace.parameters]
    )
    place_buffers(builder)


def place_weights(builder: StreamBuilder, rows: Iterable[tuple[str, str, int]]) -> None:
    """Weights as they are loaded, one after the other, for good: label, parameter and bytes of each."""
    builder.alloc_in(0, rows, Category.PARAMETERS)


def place_buffers(builder: StreamBuilder) -> None:
    """The model's buffers, for good."""
    rows = (("buffer", name, size) for name, size in builder.trace.buffer_bytes)
    builder.alloc_in(0, rows, Category.BUFFERS)


# pytorch aten/src/ATen/cuda/CublasHandlePool.cpp: getChosenWorkspaceSize.
_WORKSPACE = {9: 32 * 2**20, 10: 32 * 2**20, 12: 32 * 2**20}
# `:4096:2:16:8`, in KiB: two of 4096 and eight of 16. Also of capabilities that the source does not name, 11 and 8.9.
_WORKSPACE_BEFORE_HOPPER = 2 * 4096 * 1024 + 8 * 16 * 1024


def workspace_bytes(capability: tuple[int, int] | None) -> int:
    """One cuBLAS workspace on a GPU of this capability; 0 where there is no CUDA."""
    return 0 if capability is None else _WORKSPACE.get(capability[0], _WORKSPACE_BEFORE_HOPPER)


def place_workspaces(builder: StreamBuilder, capability: tuple[int, int] | None) -> None:
    """cuBLAS workspaces: one for the thread that runs forward, one for autograd's, never freed."""
    size = workspace_bytes(capability)
    if not size:
        return
    first = builder.passes[0]
    builder.alloc(builder.at_mark(first, Mark.FORWARD), size, Category.TEMPORARY, "cuBLAS workspace (forward)")
    builder.alloc(builder.at_mark(first, Mark.BACKWARD), size, Category.TEMPORARY, "cuBLAS workspace (backward)")


def keep_gradients(builder: StreamBuilder, parameters: list[ParameterInfo]) -> None:
    """Whole gradients that live from backward to zero_grad; later micro steps are added to the first's.

    torch/csrc/autograd/functions/accumulate_grad.h: the first gradient is taken over, later ones are added in
    place and freed; zero_grad sets them to None.
    """
    for in_pass in builder.passes:
        for index, parameter in enumerate(parameters):
            event = builder.gradient_event(index)
            if event is None or not parameter.trainable:
                continue
            if in_pass.micro_step > 0:
                builder.free_gradient(builder.after(in_pass, event), in_pass, index)
    for iteration, _ in enumerate(builder.steps):
        first = next(p for p in builder.passes if p.iteration == iteration)
        for index in range(len(parameters)):
            if builder.gradient_event(index) is not None:
                builder.free_gradient(builder.at_step(iteration), first, index)
