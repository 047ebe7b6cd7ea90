"""What is to be run: the options of one training job, each with where its value came from."""

from dataclasses import field
from enum import StrEnum

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft
from gpu_plan.planner.workload.losses import INSTALLED_LOSS
from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER, Optimizer
from gpu_plan.planner.workload.precisions import DEFAULT_PRECISION, Precision
from gpu_plan.planner.workload.settled import Basis, Settled
from gpu_plan.planner.workload.stacks.registry import Stack

MOST_TOKENS = 2**26
"""Of one micro batch: ten times what any GPU has been given, and few enough for every count to be exact."""
NVME_PATH = "./nvme"
"""Folder of the swap files where `zero.nvme_path` names none; DeepSpeed has no default."""


class Checkpointing(StrEnum):
    NONE = "none"
    SELECTIVE = "selective"
    """Matrix products and attention are kept, everything else is computed again."""
    FULL = "full"


class Attention(StrEnum):
    EAGER = "eager"
    SDPA = "sdpa"
    FLASH = "flash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(Settled):
    """One training job. `None` means: to be searched."""

    task: str = "train"
    seq_len: int = 4096
    """Tokens per sample; ignored by models without a sequence (vision)."""
    precision: Precision = DEFAULT_PRECISION
    optimizer: Optimizer = DEFAULT_OPTIMIZER
    attention: Attention = Attention.SDPA
    stack: Stack = Stack.ACCELERATE
    clipping: bool = True
    """Whether what clipping takes of memory and time is counted. It is where nobody knows of the script: that says
    nothing of what a launch is told."""
    max_grad_norm: float | None = None
    """Norm to which the run clips its gradients: as `--set clip.max_norm` or the captured script has it, 0 where that
    does not clip. None: not known, and nothing is imposed."""
    micro_batch: int | None = None
    """Samples per forward pass on one data-parallel rank."""
    global_batch: int | None = None
    """Samples per optimizer step: micro batch × data-parallel size × accumulation steps."""
    grad_accum: int | None = None
    checkpointing: Checkpointing | None = None
    strategy: str | None = None
    offload: str | None = None
    dp_replicate: int | None = None
    """Replicas of the sharded model under HSDP; None for one on each node."""
    expert_parallel: int | None = None
    """Ranks that hold whole experts each (`--ep`)."""
    tensor_parallel: int | None = None
    """Ranks that compute one copy of the model together; None: one, but for strategies in which several do."""
    context_parallel: int | None = None
    """Ranks that share the tokens of every sample (`--cp`); None: one, or what is searched for long samples."""
    pipeline_parallel: int | None = None
    """Ranks that hold stages of one copy of the model; None: one, but for strategies in which several do."""
    schedule: str | None = None
    """Order in which micro batches go through a pipeline; None: searched."""
    virtual_stages: int | None = None
    """Stages on each rank of a pipeline; None: one, or what the schedule needs."""
    peft: Peft = NO_ADAPTERS
    lora_rank: int | None = None
    """Rank of the adapters; None without them."""
    lora_targets: tuple[str, ...] | None = None
    """Modules with adapters, as peft resolved them; None without adapters."""
    fused_loss: bool = False
    """Whether the head and its cross entropy run as Liger's one function."""
    settings: tuple[tuple[str, str], ...] = ()
    """`--set KEY=VALUE` pairs, sorted by key."""
    loss: str = INSTALLED_LOSS
    """Whose loss causal language models compute, as `--set loss.variant` names it: given, or the stack's."""
    script: tuple[tuple[str, object], ...] = ()
    """What a captured script does where nobody tells it otherwise: `micro_batch`, `grad_accum`, `seq_len`."""
    basis: tuple[tuple[str, Basis], ...] = field(default=(), compare=False)

    @property
    def fused(self) -> tuple[str, ...]:
        """Liger's kernels that take the place of the model's own: `layers`, `loss`."""
        layers = ("layers",) if self.setting("kernels.liger", "false") == "true" else ()
        return (*layers, "loss") if self.fused_loss else layers


__all__ = [
    "INSTALLED_LOSS",
    "NVME_PATH",
    "Attention",
    "Checkpointing",
    "Optimizer",
    "Peft",
    "Precision",
    "Stack",
    "Workload",
]
