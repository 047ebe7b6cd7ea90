"""Transformer Engine's norms (module/_common.py: apply_normalization; module/layernorm.py, rmsnorm.py of release 2.11).

Custom functions have untyped contexts, hence Any.
"""

from typing import Any

import torch
from torch import nn


def normalised(x: torch.Tensor, weight: torch.Tensor, bias: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Output, and the statistics of each row: of a layer norm mean and scale, of an RMS norm the scale
    (module/_common.py: apply_normalization)."""
    out = torch.empty_like(x)
    statistics = empty_statistics(x, bias)
    torch.ops.aten.mul.out(x, weight, out=out)
    return out, statistics


def empty_statistics(x: torch.Tensor, bias: Any) -> list[torch.Tensor]:
    """One or two fp32 numbers a row."""
    rows = x.numel() // x.shape[-1]
    return [torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(1 + (bias is not None))]


def normalised_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, biased: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Gradients of input, weight and bias."""
    of_input = torch.empty_like(x)
    of_weight = torch.empty_like(weight)
    of_bias = torch.empty_like(weight) if biased else None
    torch.ops.aten.mul.out(grad, x, out=of_input)
    return of_input, of_weight, of_bias


class _Norm(torch.autograd.Function):
    """te.LayerNorm and te.RMSNorm: the input and the statistics of each row are kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
        out, statistics = normalised(x, weight, bias)
        ctx.save_for_backward(x, weight, *statistics)
        ctx.biased = bias is not None
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, weight, *statistics = ctx.saved_tensors
        found = normalised_backward(grads[0].contiguous(), x, weight, ctx.biased)
        for one in statistics:
            clear(one)
        return found


def clear(tensor: torch.Tensor) -> None:
    """Frees a tensor's storage under whoever still names it (pytorch/utils.py: clear_tensor_data)."""
    tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)


class Norm(nn.Module):
    """TENorm."""

    def __init__(self, size: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = parameter(size)
        self.bias = parameter(size) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _Norm.apply(x, self.weight, self.bias)
        return out


def parameter(*shape: int) -> nn.Parameter:
    """In 16 bits, on meta."""
    return nn.Parameter(torch.empty(*shape, dtype=torch.bfloat16, device="meta"))
