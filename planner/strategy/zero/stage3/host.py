"""ZeRO-3's host memory under offload, of one rank.

Mirrors deepspeed/runtime/zero/stage3.py (_create_fp32_partitions, _setup_for_real_optimizer,
_create_param_groups_fp16_flat_cpu_memory, initialize_optimizer_states) and partition_parameters.py: _partition_param.
"""

from collections.abc import Sequence

from gpu_plan.planner.strategy.base import nbytes
from gpu_plan.planner.strategy.zero.common import MASTER, pinned_bytes
from gpu_plan.planner.strategy.zero.stage3.partition import Partitions


def optimizer_host_bytes(parts: Partitions, dtype: str, pinned: bool) -> int:
    """Pageable: masters and Adam's state. Pinned: fp32 gradients by sub-group, and all gradient partitions."""
    gradients = (nbytes(parts.sub_group_share(group), MASTER) for group in parts.sub_groups)
    return (
        3 * nbytes(parts.owned, MASTER)
        + sum(pinned_bytes(size, pinned) for size in gradients)
        + pinned_bytes(nbytes(parts.owned, dtype), pinned)
    )


def weights_host_bytes(parts: Partitions, groups: Sequence[Sequence[int]], dtype: str, pinned: bool) -> int:
    """Weight partitions: those of an optimizer group in one buffer that is always pinned, frozen ones each apart.

    All are made apart while the model is built. Where those are pinned, what moves on to a group's buffer leaves its
    block to torch's cache of pinned memory (aten/src/ATen/core/CachingHostAllocator.h), which keeps it.
    """
    flat = (nbytes(parts.sub_group_share(group), dtype) for group in groups)
    moved = frozenset() if pinned else frozenset(parts.trainable)
    apart = (nbytes(share, dtype) for index, share in enumerate(parts.share) if index not in moved)
    return sum(pinned_bytes(size, True) for size in flat) + sum(pinned_bytes(size, pinned) for size in apart)
