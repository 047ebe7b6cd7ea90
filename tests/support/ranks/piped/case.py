"""One pipeline that several processes run for real and that the planner replays."""

from dataclasses import asdict, dataclass
from typing import Any

from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.pipeline.stages import StageCut, even_cuts
from gpu_plan.planner.workload.training import Checkpointing
from tests.accuracy.architectures import ARCHITECTURES

LAYERS = 4
ITERATIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedCase:
    """What one launch runs."""

    architecture: str
    schedule: Schedule = Schedule.ONE_F_ONE_B
    stages: int = 2
    """Ranks of one pipeline."""
    local: int = 1
    """Stages on each rank."""
    pipelines: int = 1
    """Pipelines with samples of their own."""
    tensor: int = 1
    """Ranks that compute each stage together."""
    strategy: str = "pp"
    micro_batches: int = 4
    micro_batch: int = 2
    seq_len: int = 40
    dtype: str = "float32"
    checkpointing: Checkpointing = Checkpointing.NONE

    @property
    def settled(self) -> bool:
        """Whether every collective waits until gloo's threads hold nothing of it: not where stages of a rank gather
        beside what pipelines send, of whose tensors a thread holds some for as long as its neighbour computes."""
        return not (self.strategy.startswith("fsdp") and (self.local > 1 or self.schedule is Schedule.ZERO_BUBBLE))

    @property
    def world(self) -> int:
        return self.stages * self.pipelines * self.tensor

    @property
    def cuts(self) -> tuple[StageCut, ...]:
        return even_cuts(LAYERS, self.stages * self.local)

    def config(self) -> dict[str, Any]:
        """The model's; without dropout, so that losses can be compared."""
        if self.architecture == "gpt2":
            changes: dict[str, Any] = {"n_layer": LAYERS, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
        else:
            changes = {"num_hidden_layers": LAYERS}
        return ARCHITECTURES[self.architecture].config(**changes)

    def label(self) -> str:
        """Short text that names the case."""
        more = f" {self.local} stages a rank" if self.local > 1 else ""
        recomputed = ", checkpointing" if self.checkpointing is Checkpointing.FULL else ""
        degrees = f"{self.stages}" + (f" x {self.tensor}" if self.tensor > 1 else "")
        return f"{self.architecture}, {self.strategy} {degrees}, {self.schedule}{more}, {self.dtype}{recomputed}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "PipedCase":
        """Back from `to_dict`."""
        kinds = {"schedule": Schedule, "checkpointing": Checkpointing}
        return cls(**{key: kinds[key](value) if key in kinds else value for key, value in values.items()})


TWO_RANKS = (
    *(PipedCase(architecture=name) for name in ("llama-3", "gpt2", "qwen2")),
    PipedCase(architecture="llama-3", schedule=Schedule.GPIPE),
    PipedCase(architecture="llama-3", schedule=Schedule.INTERLEAVED, local=2),
    PipedCase(architecture="llama-3", schedule=Schedule.ZERO_BUBBLE),
    PipedCase(architecture="llama-3", schedule=Schedule.ZERO_BUBBLE, local=2),
    PipedCase(architecture="llama-3", checkpointing=Checkpointing.FULL),
    PipedCase(architecture="llama-3", dtype="bfloat16"),
)
EIGHT_RANKS = (PipedCase(architecture="llama-3", strategy="fsdp_tp_pp", pipelines=2, tensor=2),)
FOUR_RANKS = (
    PipedCase(architecture="llama-3", strategy="tp_pp", tensor=2),
    PipedCase(architecture="qwen2", strategy="tp_pp", tensor=2),
    PipedCase(architecture="llama-3", strategy="tp_pp", tensor=2, schedule=Schedule.ZERO_BUBBLE),
    PipedCase(architecture="llama-3", strategy="tp_pp", tensor=2, schedule=Schedule.ZERO_BUBBLE, local=2),
    PipedCase(architecture="llama-3", stages=4, micro_batches=8),
    PipedCase(architecture="llama-3", strategy="ddp_pp", pipelines=2),
    PipedCase(architecture="llama-3", strategy="fsdp_pp", pipelines=2),
    PipedCase(architecture="llama-3", strategy="fsdp_pp", pipelines=2, schedule=Schedule.INTERLEAVED, local=2),
    PipedCase(architecture="llama-3", strategy="fsdp_pp", pipelines=2, schedule=Schedule.ZERO_BUBBLE, local=2),
    PipedCase(architecture="llama-3", strategy="fsdp_pp", pipelines=2, schedule=Schedule.ZERO_BUBBLE),
)
