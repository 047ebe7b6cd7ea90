"""FSDP1 with its flat parameters in host memory: what a rank takes there, and what goes back and forth.

Mirrors torch/distributed/fsdp (torch 2.13) under CPUOffload(offload_params=True), which accelerate makes of
fsdp_offload_params: _init_utils.py: _init_param_handle_from_params (a unit is flattened and cut on the device, then
moved), _flat_param.py: init_flat_param_attributes (each shard and, frozen or not, a gradient as large as it are
pinned), pre_unshard (the shard is copied to the device each time it is asked for, cast there),
_runtime_utils.py: _offload_grad (each reduced gradient is copied to the host, and stands on the device until backward
is over), _post_backward_final_callback (the host waits for those copies).
"""

from collections.abc import Callable, Sequence

from gpu_plan.planner.memory.optimizer.steps import LocalTensor, state_bytes
from gpu_plan.planner.strategy.base import RankContext, nbytes
from gpu_plan.planner.strategy.fsdp1.flat import FlatUnit
from gpu_plan.planner.strategy.zero.common import pinned_bytes
from gpu_plan.planner.workload.training import Optimizer

FROM_HOST = "flat shard from host"
NOTE = "FSDP1 offloads with CPUOffload: parameters, gradients and the optimizer's step are on the host"
Stored = Callable[[FlatUnit], str]
"""dtype of a unit's shard."""


def refuses_offload(context: RankContext) -> str | None:
    """Why parameters on the host cannot be trained so, or None."""
    if context.reduces_each and context.accumulation_steps > 1:
        return (
            "FSDP1 with its parameters on the host does not add gradients up that are reduced in every micro step"
            " (torch FullyShardedDataParallel: no accumulation outside of no_sync)"
        )
    return None


def host_bytes(units: Sequence[FlatUnit], stored: Stored, stepped: Sequence[LocalTensor], optimizer: Optimizer) -> int:
    """Pinned: every unit's shard and its gradient, each in a block of its own. Pageable: the optimizer's state."""
    shards = [nbytes(unit.shard_numel, stored(unit)) for unit in units]
    return sum(2 * pinned_bytes(size, True) for size in shards) + state_bytes(optimizer, stepped)
