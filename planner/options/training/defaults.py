"""What a value is where nobody said: by the stack, the devices and the model."""

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER, Optimizer
from gpu_plan.planner.workload.precisions import Precision, default_precision
from gpu_plan.planner.workload.training import (
    INSTALLED_LOSS,
    Stack,
)

DEFAULT_SEQ_LEN = 4096
UNBOUNDED_PAIR_SEQ_LEN = 512
"""Of an encoder-decoder whose config bounds no length: such models have relative positions as T5 does, which was
trained on 512 tokens ("Exploring the Limits of Transfer Learning", section 3.1.2; so its tokenizer says)."""


def seq_len_of(given: Given, spec: ModelSpec) -> int:
    """As given; else the usual length, or what the model is made for where that is shorter."""
    if given.seq_len is not None:
        return given.seq_len
    if spec.max_positions is None and spec.kind == "encoder-decoder":
        return UNBOUNDED_PAIR_SEQ_LEN
    return min(DEFAULT_SEQ_LEN, spec.max_positions or DEFAULT_SEQ_LEN)


def fused_loss(given: Given) -> bool:
    """Liger's kernels come with its loss (transformers' `use_liger_kernel`), unless that is declined."""
    if given.fused_loss is None:
        return dict(given.settings).get("kernels.liger") == "true"
    return given.fused_loss


def schedule_of(given: Given, pinned: bool) -> str | None:
    """As given; of a pinned pipeline torch's usual one, or interleaved where ranks are to hold several stages."""
    if given.schedule is not None:
        return str(given.schedule)
    if not pinned or given.pipeline_parallel in (None, 1):
        return None
    return str(Schedule.INTERLEAVED if (given.virtual_stages or 1) > 1 else Schedule.ONE_F_ONE_B)


def precision_of(given: Given, cluster: Cluster) -> Precision:
    """As given; else the stack's default, where it has some only; else the planner's own."""
    own = given.stack.traits.precisions if given.stack is not None else ()
    if (
        given.stack is not None
        and given.peft is not None
        and given.peft.quantises
        and not given.stack.traits.packs_mixed
    ):
        own = tuple(name for name in own if not Precision(name).is_mixed)
    return given.precision or (Precision(own[0]) if own else default_precision(cluster.gpu.supports_bf16))


def optimizer_of(stack: Stack | None) -> Optimizer:
    """What a stack that was named takes by itself."""
    own = "" if stack is None else stack.traits.optimizer
    return Optimizer(own) if own else DEFAULT_OPTIMIZER


def clips(stack: Stack | None) -> bool:
    """Whether clipping is counted where nobody says: unless the stack is known not to."""
    return stack is None or stack.traits.clip != 0


def loss_of(given: Given, spec: ModelSpec) -> str:
    """As given; else the stack's own, for what it trains with it."""
    variant = dict(given.settings).get("loss.variant")
    own = "" if given.stack is None else given.stack.traits.loss
    if variant is not None or not own or fused_loss(given) or not spec.class_name.endswith("ForCausalLM"):
        return variant or INSTALLED_LOSS
    return own
