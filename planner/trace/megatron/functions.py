"""What Megatron-core fuses between linear layers (megatron/core/fusions), compiled by torch.compile (core/jit.py).

Custom functions have untyped contexts, hence Any.
"""

from typing import Any

import torch


class SwiGlu(torch.autograd.Function):
    """fused_bias_swiglu.py: SwiGLUFunction: the two halves are kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: Any) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.bias = None if bias is None else bias.shape
        out = torch.empty((*x.shape[:-1], x.shape[-1] // 2), dtype=x.dtype, device=x.device)
        torch.ops.aten.mul.out(x[..., : out.shape[-1]], x[..., out.shape[-1] :], out=out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        of_input = torch.empty_like(x)
        torch.ops.aten.mul.out(x, x, out=of_input)
        # The gradient of the bias is that of the input; autograd sums it over the rows.
        of_bias = None if ctx.bias is None else of_input.reshape(-1, of_input.shape[-1]).sum(0)
        return of_input, of_bias


class WeightedSwiGlu(torch.autograd.Function):
    """fused_bias_swiglu.py: WeightedSwiGLUFunction: with the weight of each token."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weights)
        out = torch.empty((*x.shape[:-1], x.shape[-1] // 2), dtype=x.dtype, device=x.device)
        torch.ops.aten.mul.out(x[..., : out.shape[-1]], x[..., out.shape[-1] :], out=out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, weights = ctx.saved_tensors
        of_input, of_weights = torch.empty_like(x), torch.empty_like(weights)
        torch.ops.aten.mul.out(x, x, out=of_input)
        return of_input, of_weights


class Gelu(torch.autograd.Function):
    """fused_bias_gelu.py: GeLUFunction: the input is kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: Any) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.bias = None if bias is None else bias.shape
        out = torch.empty_like(x)
        torch.ops.aten.mul.out(x, x, out=out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        of_input = torch.empty_like(x)
        torch.ops.aten.mul.out(grads[0].contiguous(), x, out=of_input)
        of_bias = None if ctx.bias is None else of_input.reshape(-1, of_input.shape[-1]).sum(0)
        return of_input, of_bias


class AddDropped(torch.autograd.Function):
    """fused_bias_dropout.py: bias_dropout_add_fused_train: one kernel, of which the mask is kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: Any, residual: torch.Tensor, probability: float) -> torch.Tensor:
        out = torch.empty_like(residual)
        torch.ops.aten.add.out(x, residual, out=out)
        ctx.bias = None if bias is None else bias.shape
        ctx.probability = probability
        if probability:
            ctx.save_for_backward(torch.empty(x.shape, dtype=torch.bool, device=x.device))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        grad = grads[0]
        of_input = grad
        if ctx.probability:
            (mask,) = ctx.saved_tensors
            of_input = torch.empty_like(grad)
            torch.ops.aten.mul.out(grad, mask, out=of_input)
        of_bias = None if ctx.bias is None else _summed_compiled(of_input.reshape(-1, of_input.shape[-1]))
        return of_input, of_bias, grad, None


def _summed_compiled(rows: torch.Tensor) -> torch.Tensor:
    """A sum over rows within what torch.compile makes, which reads as much but is not torch's own kernel of sums."""
    out = torch.empty(rows.shape[-1], dtype=rows.dtype, device=rows.device)
    torch.ops.aten.mean.out(rows, [0], out=out)
    return out


class Rotary(torch.autograd.Function):
    """Transformer Engine's fused rotary embedding (pytorch/attention/rope.py: FusedRoPEFunc): nothing large is kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        torch.ops.aten.mul.out(x, x, out=out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        of_input = torch.empty(grads[0].shape, dtype=grads[0].dtype, device=grads[0].device)
        torch.ops.aten.mul.out(grads[0], grads[0], out=of_input)
        return of_input


class SplitLast(torch.autograd.Function):
    """pytorch/attention/dot_product_attention/utils.py: SplitAlongDim: views one way, one concatenation the other."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        found: tuple[torch.Tensor, ...] = tuple(torch.split(x, list(sizes), dim=-1))
        return found

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return torch.cat(grads, dim=-1), None


class ScaledSoftmax(torch.autograd.Function):
    """Transformer Engine's and Megatron-core's ScaledMaskedSoftmax (softmax.py, fused_softmax.py): the result is kept,
    and its gradient takes the place of what comes in."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.ops.aten.exp.out(x, out=out)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        (out,) = ctx.saved_tensors
        grad = grads[0].contiguous()
        torch.ops.aten.mul.out(grad, out, out=grad)
        return grad
