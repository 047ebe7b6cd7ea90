"""What was given for a training: option words as values; None where nobody said."""

from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.adapters import Peft
from gpu_plan.planner.workload.optimizers.registry import Optimizer
from gpu_plan.planner.workload.precisions import Precision
from gpu_plan.planner.workload.training import (
    Attention,
    Checkpointing,
    Stack,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Option words as values; None where an option was not given."""

    precision: Precision | None
    optimizer: Optimizer | None
    attention: Attention | None
    stack: Stack | None
    checkpointing: Checkpointing | None
    strategy: str | None
    offload: Offload | None
    seq_len: int | None
    micro_batch: int | None
    global_batch: int | None
    grad_accum: int | None
    dp_replicate: int | None
    tensor_parallel: int | None
    expert_parallel: int | None
    context_parallel: int | None
    pipeline_parallel: int | None
    schedule: Schedule | None
    virtual_stages: int | None
    peft: Peft | None
    lora_rank: int | None
    lora_targets: tuple[str, ...] | None
    fused_loss: bool | None
    settings: tuple[tuple[str, str], ...]
