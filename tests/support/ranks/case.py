"""One training job that several processes run for real and that the planner replays."""

from dataclasses import asdict, dataclass, field
from typing import Any

from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER
from gpu_plan.planner.workload.precisions import PLAIN_PRECISION
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Precision
from tests.accuracy.architectures import ARCHITECTURES
from tests.accuracy.further_architectures import FURTHER
from tests.accuracy.unseen_architectures import UNSEEN
from tests.support.ranks.architectures import SPREAD
from tests.support.ranks.own_defaults import OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCase:
    """What one launch runs; the number of ranks belongs to the launch."""

    architecture: str
    strategy: str = "fsdp"
    precision: Precision = PLAIN_PRECISION
    optimizer: Optimizer = DEFAULT_OPTIMIZER
    accumulation: int = 1
    micro_batch: int = 2
    seq_len: int = 40
    checkpointing: Checkpointing = Checkpointing.NONE
    attention: Attention = Attention.SDPA
    changes: dict[str, Any] = field(default_factory=dict)
    """Config values beside the architecture's own."""
    layers: tuple[str, ...] = ()
    """Classes that FSDP wraps; none: what the model says not to split."""
    settings: dict[str, str] = field(default_factory=dict)
    """`--set` keys."""
    lora_rank: int = 0
    """Rank of peft's adapters around a frozen model; 0: all is trained."""
    lora_targets: tuple[str, ...] = ()
    """Modules that get adapters; none: peft's choice."""
    tensor_parallel: int = 1
    """Ranks that compute one copy of the model together."""
    expert_parallel: int = 1
    """Ranks that hold whole experts each; tokens are then chosen evenly, here and there."""
    crowded: bool = False
    """Whether tokens choose the first rank's experts as often as they may, instead of evenly."""
    cuts_sequence: bool = False
    """Whether the ranks of tensor parallel share out the sequence between products, as torchtitan has it."""
    quantised: bool = False
    """Whether the frozen linear layers are bitsandbytes' NF4, stored in the type of the rest."""

    @property
    def config(self) -> dict[str, Any]:
        """The architecture's, narrow, with the case's changes."""
        return {**ARCHITECTURES, **UNSEEN, **FURTHER, **SPREAD, **OWN}[self.architecture].config(**self.changes)

    @property
    def replicas(self) -> int:
        """Whole sharded copies of the model."""
        return 2 if self.strategy.startswith("hsdp") else 1

    @property
    def autocast(self) -> bool:
        """Whether forward runs as accelerate prepares it; peft's fp32 inputs and FSDP1's 16-bit adapters need that."""
        return (
            self.precision.is_mixed
            and not self.cuts_sequence
            and (self.strategy.endswith(("sdp_tp", "sdp_ep")) or (self.strategy == "fsdp1" and self.lora_rank > 0))
        )

    @property
    def weights(self) -> str:
        """dtype in which forward sees the parameters."""
        return self.precision.compute_dtype

    @property
    def stored(self) -> str:
        """dtype in which the parameters are kept."""
        return "float32" if self.precision.is_mixed and not self.lora_rank else self.precision.compute_dtype

    def label(self) -> str:
        """Short text that names the case."""
        parts = [self.architecture, self.strategy, str(self.precision), f"accumulation {self.accumulation}"]
        if self.optimizer != DEFAULT_OPTIMIZER:
            parts.append(str(self.optimizer))
        if self.tensor_parallel > 1:
            parts.append(f"TP {self.tensor_parallel}" + (" by torchtitan" if self.cuts_sequence else ""))
        if self.expert_parallel > 1:
            parts.append(f"EP {self.expert_parallel}" + (" crowded" if self.crowded else ""))
        if self.checkpointing is not Checkpointing.NONE:
            parts.append("checkpointing" if self.checkpointing is Checkpointing.FULL else "selective checkpointing")
        if self.lora_rank:
            parts.append(" ".join((f"{'QLoRA' if self.quantised else 'LoRA'} {self.lora_rank}", *self.lora_targets)))
        if self.layers:
            parts.append(f"wrapping {' '.join(self.layers)}")
        return ", ".join(parts + [f"{key} {value}" for key, value in (self.changes | self.settings).items()])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RankCase":
        """Back from `to_dict`."""
        kinds = {
            "precision": Precision,
            "optimizer": Optimizer,
            "checkpointing": Checkpointing,
            "attention": Attention,
        }
        return cls(**{key: kinds[key](value) if key in kinds else value for key, value in values.items()})
