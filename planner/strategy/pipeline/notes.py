"""What a pipeline's plan rests on, in words, and what it does not take."""

from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.traits import Offload


def refuses_pipeline(context: RankContext) -> str | None:
    """Why a model cannot be trained in stages here, or None."""
    if context.world_size == 1:
        return "there is only one GPU"
    if context.peft.adapts:
        return "adapters in a pipeline are not in this version"
    if context.precision.is_float8:
        return "float8 training in a pipeline is not in this version"
    if context.offload is not Offload.NONE:
        return "offload in a pipeline is not in this version"
    return None


def refuses_shared_pipeline(context: RankContext) -> str | None:
    """The same where groups of ranks compute each stage together."""
    if not context.optimizer.traits.takes_dtensors:
        return f"{context.optimizer} keeps plain tensors beside DTensors, which torch refuses to mix"
    return refuses_pipeline(context)


def pipeline_notes(context: RankContext) -> tuple[str, ...]:
    """How stages are made and run."""
    rank = context.pipeline
    assert rank is not None
    return (
        f"stages are run by torch.distributed.pipelining ({rank.schedule.torch_class}), one after the other of"
        " transformers' layers, with return_outputs=False: plan --execute brings it about in a script's own loop,"
        " accelerate launch runs none",
    )
