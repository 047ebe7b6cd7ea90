"""Sizes of the contiguous buffers in which Megatron's DDP holds a rank's parameters and gradients, in elements.

megatron/core/optimizer/distrib_optimizer.py: DistributedOptimizer._compute_per_buffer_param_layout and
megatron/core/optimizer/param_layout.py; without the distributed optimizer
megatron/core/distributed/param_and_grad_buffer.py: _compute_default_per_buffer_param_layout, which pads nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.planner.units import ceil_div

_START = 64
_END = 128


@dataclass(frozen=True, slots=True)
class Held:
    """One parameter in the order of `named_parameters`."""

    numel: int
    shared_embedding: bool = False
    """Whether it stands on the first and the last stage: it gets a bucket of its own."""


def bucket_size(overlap: bool, data_parallel: int) -> int | None:
    """distributed_data_parallel.py: __init__: elements of a bucket; None: all parameters are one."""
    return max(40_000_000, 1_000_000 * data_parallel) if overlap else None


def padded(parameters: Sequence[Held], data_parallel: int, size: int | None) -> int:
    """Elements of a buffer under the distributed optimizer."""
    divisor = math.lcm(data_parallel, _END)
    start = bucket = end = 0
    filled = False
    for parameter in reversed(parameters):
        start = ceil_div(start, _START) * _START
        if parameter.shared_embedding and filled:
            start = bucket = ceil_div(start, divisor) * divisor
            filled = False
        end = start + parameter.numel
        filled = True
        if (size is not None and end - bucket >= size) or parameter.shared_embedding:
            start = bucket = ceil_div(end, divisor) * divisor
            filled = False
        else:
            start = end
    return ceil_div(end, divisor) * divisor if filled else bucket


def unpadded(parameters: Sequence[Held]) -> int:
    """Elements of a buffer without it."""
    return sum(parameter.numel for parameter in parameters)
