"""Scratch of gradient clipping."""

from collections.abc import Sequence

from gpu_plan.planner.memory.stream.placing import Placer
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.units import ceil_div
from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

# pytorch aten/src/ATen/native/cuda/MultiTensorApply.cuh: kChunkSize elements make one partial sum, in fp32.
_NORM_CHUNK = 65_536
_SCALAR = 4


def place_clipping(builder: Placer, iteration: int, tensors: Sequence[LocalTensor]) -> None:
    """Scratch of clip_grad_norm_: one norm per tensor, their stack, and the partial sums of the foreach kernel; of each
    group of parameters by itself.

    torch/nn/utils/clip_grad.py; pytorch aten/src/ATen/native/cuda/ForeachReduceOp.cu: foreach_tensor_norm_cuda.
    """
    for group in dict.fromkeys(tensor.group for tensor in tensors):
        _place(builder, iteration, [tensor for tensor in tensors if tensor.numel and tensor.group == group])


def _place(builder: Placer, iteration: int, live: Sequence[LocalTensor]) -> None:
    if not live:
        return
    chunks = max(ceil_div(tensor.numel, _NORM_CHUNK) for tensor in live)
    partial = builder.alloc(
        builder.at_step(iteration), _SCALAR * len(live) * chunks, Category.TEMPORARY, "clip_grad_norm_ partial sums"
    )
    norms = builder.alloc_each(
        builder.at_step(iteration), [_SCALAR] * len(live), Category.TEMPORARY, "clip_grad_norm_ norms"
    )
    stacked = builder.alloc(
        builder.at_step(iteration), _SCALAR * len(live), Category.TEMPORARY, "clip_grad_norm_ stacked norms"
    )
    builder.free_each(builder.at_step(iteration), (partial, *norms, stacked))
