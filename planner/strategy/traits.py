"""What tells strategies of training apart: values that everything but a strategy's own file reads.

A strategy is one file in `gpu_plan.planner.strategy.kinds`. Nothing here imports torch or numpy: launch files, reports,
the doctor and the explorer read traits where no step is replayed.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, ClassVar, Literal

from gpu_plan.planner.plain.values import dataclass


class Offload(StrEnum):
    """What lives in host memory instead of the device's."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    ALL = "all"
    """Parameters, gradients and the optimizer."""
    NVME = "nvme"
    """The same in files, which pass through buffers in host memory (ZeRO-Infinity)."""


class Engine(StrEnum):
    """Who wraps the model: the class that is found around it or around its blocks."""

    NONE = "no wrapper"
    DDP = "DistributedDataParallel"
    FSDP2 = "FSDPModule"
    FSDP1 = "FullyShardedDataParallel"
    DEEPSPEED = "DeepSpeedEngine"
    DTENSOR = "DTensor"
    """transformers' own `DistributedConfig`: weights are DTensors on one mesh, whatever stands around them."""
    PIPELINE = "PipelineStage"
    """torch.distributed.pipelining: each rank runs stages of the model, in the order of a schedule."""
    MEGATRON = "megatron.core"
    """Megatron-core: its own model, schedules, buffers and optimizer."""


ENGINE_TITLES = {
    Engine.NONE: "",
    Engine.DDP: "DDP",
    Engine.FSDP2: "FSDP2",
    Engine.FSDP1: "FSDP1",
    Engine.DEEPSPEED: "ZeRO",
    Engine.DTENSOR: "tensor parallel",
    Engine.PIPELINE: "pipeline",
    Engine.MEGATRON: "Megatron",
}
"""What an engine's strategies are called together."""


class Fault(StrEnum):
    """A mistake in a script that ends or spoils a run under some strategies, and is only unclean under others."""

    COMPILED_FIRST = "a model is compiled before it is wrapped"
    SAVES_WRAPPED = "save_pretrained is called on the wrapped model"
    ASKS_WRAPPER = "the wrapped model is asked for what its class has"
    PREPARED_APART = "model and optimizer are prepared apart"


class Form(StrEnum):
    """How a checkpoint's files hold model and optimizer: what one reader takes, another may refuse."""

    WHOLE = "whole"
    """One model and one optimizer, unsharded."""
    FSDP2_SHARDS = "FSDP2 shards"
    FSDP1_SHARDS = "FSDP1 shards"
    ZERO_OPTIMIZER = "ZeRO stages 1 and 2"
    """Whole weights beside a partitioned optimizer."""
    ZERO_PARAMETERS = "ZeRO stage 3"
    """Weights partitioned too."""
    TENSOR_SHARDS = "tensor parallel shards"
    """DTensors of any mesh, in torch's distributed checkpoint."""
    STAGES = "pipeline stages"
    """The layers of each stage, in torch's distributed checkpoint."""
    MEGATRON = "Megatron shards"
    """Megatron-core's own names, in torch's distributed checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """Where the search tries a strategy that was not asked for."""

    over: Literal["devices", "nodes"] | None
    """`devices`: wherever there are several; `nodes`: only over several nodes; None: over no more than one."""
    alone: tuple[Offload, ...]
    """Kinds of offload with which it is tried on one device; none: it is not tried there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What torch.compile makes of a model under a strategy, as Accelerate calls it."""

    regions: Literal["model", "blocks"] | None
    """`model`: one graph; `blocks`: each block by itself; None: nothing worth the name, the step is as written."""
    note: str = ""
    """What of the compiled step is only approximate; empty: nothing."""
    note_holds_regionally: bool = True
    """Whether the note holds where blocks are compiled one by one because the user said so."""
    approximate: bool = False
    """Whether less may be compiled than is counted: the uncompiled step is then the upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """How ranks use their node's RAM while the model is loaded and saved."""

    loads: Literal["as computed", "upcast", "unknown", "partitioned", "slices"]
    """dtype of weights before they go to a device when training is mixed. `as computed`: that of the rank's regime;
    `upcast`: what is trained in fp32; `unknown`: the plan does not say; `partitioned`: as unknown, and one rank reads
    it, parameter by parameter; `slices`: each rank reads its own part of one tensor after the other."""
    saves: Literal["whole", "shards", "every rank", "gathered"]
    """`whole`: rank 0 writes its copy; `shards`: every rank its own; `every rank`: each clones the whole; `gathered`:
    rank 0 collects it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a checkpoint saved under a strategy is, and what can be made into one."""

    form: Form
    """What it is saved as, and what is read as it stands."""
    made_from: tuple[Form, ...]
    """Forms from which a converter makes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """What is tried after an out-of-memory end, mildest first."""

    then: tuple[str, ...]
    """Strategies that share out more among the same ranks. Engines are not mixed where they need not be: a checkpoint
    of one is rarely read by the other."""
    offloads: tuple[Offload, ...]
    """Kinds of offload that can still be switched on, mildest first."""
    only_offloaded: tuple[str, ...] = ()
    """Strategies that help by their offload alone: on one device nothing can be shared out, but states can leave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """One strategy, as far as anything but its replay depends on it."""

    name: str
    """Value of `--strategy`; also the name of its module."""
    title: str
    """Name in reports: `ZeRO-2`."""
    gpu_title: str = ""
    """Name where devices are GPUs, as in the reasons of the search; empty: the title."""
    place: int
    """Order in which strategies are listed and tried, simplest first."""
    moving_parts: int
    """How much there is to set up and to go wrong, of two that are equally fast the less: one process 0, DDP 1, FSDP2
    2, HSDP 3, FSDP1 4, DeepSpeed's engine 5. What is offloaded comes on top."""
    engine: Engine
    stage: int
    """What data parallel ranks share out: 0 nothing, 1 optimizer, 2 and gradients, 3 and parameters."""
    one_device: bool
    """Whether it runs on one device and nowhere else."""
    replicates: bool
    """Whether groups of ranks hold one whole sharded copy each (`--dp-replicate`)."""
    unreplicated: str = ""
    """Strategy that it comes to with one group; empty where there are no groups."""
    tensor_parallel: Literal["", "all", "some"] = ""
    """Whether ranks compute one copy of the model together (`--tp`): all of them, or groups of some; empty: each
    computes its own."""
    expert_parallel: Literal["", "may", "must"] = ""
    """Whether ranks hold whole experts each (`--ep`) and send each other their tokens: if it is asked for, or always;
    empty: never."""
    untensored: str = ""
    """Strategy that it comes to where each rank computes its own copy, with all experts; empty where none is so."""
    context_parallel: Literal["", "ring", "ulysses"] = ""
    """How ranks share the tokens of every sample (`--cp`): keys and values go round (torch's `context_parallel`), or
    heads are exchanged for tokens (DeepSpeed's); empty: each computes whole samples."""
    pipeline_parallel: Literal["", "all", "some"] = ""
    """Whether ranks hold stages of one copy of the model (`--pp`): all of them one each, or groups of some; empty: each
    holds all layers."""
    own_model: str = ""
    """Library whose own model a rank runs in place of the user's class, which shares it out in every degree at once;
    empty: the user's class runs."""
    unpiped: str = ""
    """Strategy that it comes to with one stage; empty where none is named so."""
    cpu_ranks: bool
    """Whether Accelerate joins CPU processes so, without functions replaced in each."""
    offloads: tuple[Offload, ...]
    """Kinds of offload that it knows."""
    fails_offloaded_on_cpu: str = ""
    """Why it trains wrongly with an offload on CPU processes; empty where it does not."""
    settings: frozenset[str]
    """Keys of `--set` that say something about some strategies only, this one among them."""
    flags: tuple[str, ...]
    """Words of `accelerate launch` that ask for it; those that depend on the job follow, by engine."""
    packages: tuple[str, ...]
    """Distributions that it needs besides torch, accelerate and transformers."""
    wrapped_by: frozenset[str]
    """Names of which one stands in a script that runs it in a loop of its own; empty where nothing has to."""
    seen_as: tuple[str, ...]
    """What a rank that runs it finds around its model: words of gpu_plan.executor.runner.observe.wrapping."""
    searched: Searched
    compiled: Compiled
    host: Host
    checkpoint: Checkpoint
    ladder: Ladder
    faults: frozenset[Fault]
    """Mistakes of a script that are errors under it."""

    @property
    def every_rank(self) -> bool:
        """Whether its replay heeds the rank's place, so that every kind of rank can be told; others tell the worst."""
        return self.engine in (Engine.FSDP2, Engine.DTENSOR)

    @property
    def spreads(self) -> bool:
        """Whether transformers itself spreads the whole model over ranks; stages are spread by who cuts them."""
        return bool(self.tensor_parallel or self.expert_parallel) and not self.pipeline_parallel

    @property
    def title_on_gpus(self) -> str:
        """Name where devices are GPUs."""
        return self.gpu_title or self.title

    @property
    def wraps_blocks(self) -> bool:
        """Whether blocks of the model are wrapped one by one, as FSDP does."""
        return self.engine in (Engine.FSDP1, Engine.FSDP2)

    @property
    def uses_deepspeed(self) -> bool:
        """Whether DeepSpeed's engine runs the step."""
        return self.engine is Engine.DEEPSPEED

    @property
    def shards_model(self) -> bool:
        """Whether a rank holds only a part of the parameters."""
        return self.stage == 3


class HasTraits:
    """A strategy's side that its traits answer for."""

    traits: ClassVar[Traits]

    @property
    def name(self) -> str:
        """Value of `--strategy`."""
        return self.traits.name

    @property
    def title(self) -> str:
        """Name in the reasons of the search: `ZeRO-2`."""
        return self.traits.title_on_gpus

    @property
    def offloads(self) -> tuple[Offload, ...]:
        """Kinds of offload that it knows."""
        return self.traits.offloads

    def prepares(self, context: Any) -> Iterator[None]:
        """What takes longest of a rank's plan, before anybody asks: of most nothing does."""
        return iter(())
