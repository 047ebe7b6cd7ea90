"""What is to be run: the options of one training job, each with where its value came from."""

from dataclasses import dataclass, field
from enum import StrEnum

from gpu_plan.planner.workload.settled import Basis, Settled

NVME_PATH = "./nvme"
"""Folder of the swap files where `zero.nvme_path` names none; DeepSpeed has no default."""


class Precision(StrEnum):
    FP32 = "fp32"
    BF16_MIXED = "bf16-mixed"
    FP16_MIXED = "fp16-mixed"
    BF16 = "bf16"
    FP8_MIXED = "fp8-mixed"
    """float8 products inside bf16-mixed."""

    @property
    def compute_dtype(self) -> str:
        """torch dtype in which matrix products run, but for those in float8."""
        return {"fp32": "float32", "fp16-mixed": "float16"}.get(self.value, "bfloat16")

    @property
    def is_mixed(self) -> bool:
        """Whether fp32 weights stand behind 16-bit computation."""
        return self in (Precision.BF16_MIXED, Precision.FP16_MIXED, Precision.FP8_MIXED)


class Optimizer(StrEnum):
    ADAMW = "adamw"
    ADAMW_FUSED = "adamw-fused"
    ADAMW_FORLOOP = "adamw-forloop"
    ADAMW_8BIT = "adamw-8bit"
    PAGED_ADAMW_8BIT = "paged-adamw-8bit"
    LION = "lion"
    LION_8BIT = "lion-8bit"
    SGD = "sgd"
    SGD_MOMENTUM = "sgd-momentum"
    ADAFACTOR = "adafactor"
    MUON = "muon"


class Checkpointing(StrEnum):
    NONE = "none"
    SELECTIVE = "selective"
    """Matrix products and attention are kept, everything else is computed again."""
    FULL = "full"


class Peft(StrEnum):
    """Parameter-efficient training: what is trained instead of the model itself."""

    NONE = "none"
    LORA = "lora"
    QLORA = "qlora"


class Attention(StrEnum):
    EAGER = "eager"
    SDPA = "sdpa"
    FLASH = "flash"


class Stack(StrEnum):
    """Who runs the loop, hence what is held when."""

    ACCELERATE = "accelerate"
    TRAINER = "trainer"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(Settled):
    """One training job. `None` means: to be searched."""

    task: str = "train"
    seq_len: int = 4096
    """Tokens per sample; ignored by models without a sequence (vision)."""
    precision: Precision = Precision.BF16_MIXED
    optimizer: Optimizer = Optimizer.ADAMW
    attention: Attention = Attention.SDPA
    stack: Stack = Stack.ACCELERATE
    clipping: bool = True
    """Whether gradients are clipped to a norm before each optimizer step."""
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
    peft: Peft = Peft.NONE
    lora_rank: int | None = None
    """Rank of the adapters; None without them."""
    lora_targets: tuple[str, ...] | None = None
    """Modules with adapters, as peft resolved them; None without adapters."""
    fused_loss: bool = False
    """Whether the head and its cross entropy run as Liger's one function."""
    settings: tuple[tuple[str, str], ...] = ()
    """`--set KEY=VALUE` pairs, sorted by key."""
    basis: tuple[tuple[str, Basis], ...] = field(default=(), compare=False)

    @property
    def fused(self) -> tuple[str, ...]:
        """Liger's kernels that take the place of the model's own: `layers`, `loss`."""
        layers = ("layers",) if self.setting("kernels.liger", "false") == "true" else ()
        return (*layers, "loss") if self.fused_loss else layers
