"""What every version of the kernel asks of its operands."""

import torch
from torch.nn import functional as F

from gpu_plan.planner.errors import InputError

_LARGEST_HEAD = 256


def kernel_operands(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values as the kernel takes them: heads of a multiple of 8, the last dimension dense.

    InputError for what the real kernel refuses: fp32 operands, heads larger than 256.
    """
    dtype, head_dim = operands[0].dtype, operands[0].shape[-1]
    if dtype not in (torch.float16, torch.bfloat16):
        raise InputError(f"flash attention computes in 16 bit only, not {dtype}: use a mixed or 16-bit precision")
    if head_dim > _LARGEST_HEAD:
        raise InputError(f"flash attention takes heads of up to {_LARGEST_HEAD}, not {head_dim}: use --attention sdpa")
    if missing := -head_dim % 8:
        operands = tuple(F.pad(operand, [0, missing]) for operand in operands)
    return tuple(operand if operand.stride(-1) == 1 else operand.contiguous() for operand in operands)
