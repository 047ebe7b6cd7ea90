"""DeepSpeed's linear function, which it puts in the place of torch's wherever ZeRO-3 partitions a model.

Mirrors deepspeed/runtime/zero/linear.py (0.19.8): LinearFunctionForZeroStage3, and partition_parameters.py:
Init._enable_mem_efficient_linear, which is on unless `memory_efficient_linear` is false. It keeps its input whether or
not the weight is trained, where torch's own keeps that of a trained weight alone; and it keeps the input as it was
given, where torch's keeps the contiguous copy that its product works on.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F


class _Linear(torch.autograd.Function):
    """LinearFunctionForZeroStage3."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight, bias)
        if x.dim() == 2 and bias is not None:
            return torch.addmm(bias, x, weight.t())
        output = x.matmul(weight.t())
        if bias is not None:
            output += bias
        return output

    @staticmethod
    def backward(
        ctx: Any, *grads: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        x, weight, bias = ctx.saved_tensors
        (grad,) = grads
        of_input = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_input = grad.matmul(weight)
        if ctx.needs_input_grad[1]:
            of_weight = grad.reshape(-1, grad.shape[-1]).t().matmul(x.reshape(-1, x.shape[-1]))
        if bias is not None and ctx.needs_input_grad[2]:
            of_bias = grad.sum(list(range(grad.dim() - 1)))
        return of_input, of_weight, of_bias


@contextlib.contextmanager
def zero_linear() -> Iterator[None]:
    """Within, every layer that calls torch.nn.functional.linear takes DeepSpeed's."""

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        made: torch.Tensor = _Linear.apply(x, weight, bias)
        return made

    with mock.patch.object(F, "linear", linear):
        yield


__all__ = ["zero_linear"]
