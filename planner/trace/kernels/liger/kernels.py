"""Liger's norms, gated products and rotation on meta: what they allocate, keep and overwrite.

Mirrors liger-kernel 0.8.5 src/liger_kernel/ops/rms_norm.py (rms_norm_forward, rms_norm_backward), swiglu.py,
geglu.py and rope.py. The Triton kernels themselves write into tensors that stand already; one pointwise operator
takes the place of each, so that its memory traffic is counted. Custom functions have untyped contexts, hence Any.
"""

from typing import Any

import torch

from gpu_plan.planner.trace.kernels.liger.loss import LigerDevice


class LigerRmsNorm(torch.autograd.Function):
    """Keeps the input and one number per row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, in_place: bool, device: LigerDevice) -> torch.Tensor:
        x = x.contiguous()
        rows = x.view(-1, x.shape[-1])
        out = torch.empty_like(rows)
        scale = torch.empty(rows.shape[0], dtype=torch.float32, device=x.device)
        out.copy_(rows)
        ctx.in_place, ctx.device = in_place, device
        ctx.save_for_backward(rows, weight, scale)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None, None]:
        rows, weight, _ = ctx.saved_tensors
        grad = grads[0].contiguous()
        partials = ctx.device.sm_count if ctx.needs_input_grad[1] else 0
        of_input, of_weight = _norm_backward(grad, rows, weight, ctx.in_place, partials)
        return of_input, of_weight, None, None


def _norm_backward(
    grad: torch.Tensor, rows: torch.Tensor, weight: torch.Tensor, in_place: bool, partials: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """rms_norm_backward: the weight's gradient is summed over fp32 rows, one for each multiprocessor."""
    flat = grad.view(-1, grad.shape[-1])
    partial = torch.empty((partials, flat.shape[1]), dtype=torch.float32, device=grad.device) if partials else None
    out = flat if in_place else torch.zeros_like(flat)
    out.mul_(rows)
    of_weight = None if partial is None else partial.sum(dim=0).to(weight.dtype)
    return out.view(grad.shape), of_weight


class LigerGatedProduct(torch.autograd.Function):
    """silu(a)·b or gelu(a)·b: keeps a and b, and writes their gradients over them."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.contiguous(), b.contiguous()
        rows_a, rows_b = a.view(-1, a.shape[-1]), b.view(-1, b.shape[-1])
        out = torch.empty_like(rows_a)
        torch.ops.aten.mul.out(rows_a, rows_b, out=out)
        ctx.save_for_backward(rows_a, rows_b)
        return out.view(a.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = ctx.saved_tensors
        grad = grads[0].contiguous()
        flat = grad.view(-1, grad.shape[-1])
        a.mul_(flat)
        b.mul_(flat)
        return a.view(grad.shape), b.view(grad.shape)


class LigerRotary(torch.autograd.Function):
    """Rotates queries and keys where they lie; keeps the tables."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = cos.contiguous(), sin.contiguous()
        ctx.save_for_backward(cos, sin)
        return _turned(q), _turned(k)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        assert len(ctx.saved_tensors) == 2
        return _turned(grads[0]), _turned(grads[1]), None, None


def _turned(heads: torch.Tensor) -> torch.Tensor:
    """In the layout [batch, sequence, heads, head size], which most projections have already."""
    rows = heads.transpose(1, 2).contiguous()
    rows.mul_(1)
    return rows.transpose(1, 2)


def rotary(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """liger_rotary_pos_emb, in place of a modeling module's `apply_rotary_pos_emb`."""
    turned: tuple[torch.Tensor, torch.Tensor] = LigerRotary.apply(q, k, cos, sin)
    return turned
