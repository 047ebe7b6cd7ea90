"""What a training run leaves on disk: the weights alone, and a checkpoint to go on from.

Read in the installed sources: accelerate accelerator.py `save_state` writes the model's state as it is held, and
torch.optim's state beside it; utils/fsdp_utils.py `save_fsdp_model`, `save_fsdp_optimizer` write the fp32 shards that
are stepped. deepspeed runtime/engine.py `save_checkpoint` writes the 16-bit module, and fp32 masters and states apart.
peft peft_model.py `save_pretrained` writes adapters alone, as transformers' Trainer does.
"""

from gpu_plan.planner.memory.optimizer.steps import state_bytes
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import MASTER, nbytes, whole_parameters
from gpu_plan.planner.strategy.traits import Traits
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.training import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFiles:
    """Bytes on disk, of all ranks together."""

    weights_bytes: int
    """The whole model; with adapters, these alone."""
    checkpoint_bytes: int
    """The same with masters, where they are kept apart, and the optimizer's state."""


def saved_files(trace: StepTrace, regime: Regime, traits: Traits, workload: Workload) -> SavedFiles:
    """Of a whole model's trace (one without a step will do) under a strategy's regime."""
    mixed, adapts = workload.precision.is_mixed, workload.peft.adapts
    apart = traits.uses_deepspeed and mixed
    wide = mixed and (apart or traits.host.saves == "shards")
    weights = stepped = state = 0
    trained: dict[str, set[str]] = {}
    for parameter in trace.parameters:
        if parameter.tied_to:
            continue
        held = regime.of(parameter)
        dtype = MASTER if wide and parameter.trainable else held
        if parameter.trainable or not adapts:
            weights += nbytes(parameter.numel, held if apart else dtype)
        if parameter.trainable:
            stepped += nbytes(parameter.numel, dtype)
            trained.setdefault(dtype, set()).add(parameter.name)
    for dtype, names in trained.items():
        tensors = [tensor for tensor in whole_parameters(trace, dtype) if tensor.name in names]
        state += state_bytes(workload.optimizer, tensors, full_embeddings=workload.stack.traits.is_trainer)
    return SavedFiles(weights_bytes=weights, checkpoint_bytes=weights + (stepped if apart else 0) + state)
