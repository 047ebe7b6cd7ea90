"""Liger's fused linear cross entropy on meta: what it allocates, keeps and overwrites; kernels write in place.

Mirrors liger-kernel 0.8.5 src/liger_kernel/ops/fused_linear_cross_entropy.py
(fused_linear_cross_entropy_forward and _backward, _can_use_mm_out), ops/cross_entropy.py (cross_entropy_forward and
_backward) and transformers/model/loss_utils.py (LigerForCausalLMLoss). Custom functions have
untyped contexts, hence Any.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from gpu_plan.planner.units import ceil_div

IGNORED = -100
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True, kw_only=True)
class LigerDevice:
    """What Liger asks about the device."""

    capability: tuple[int, int] = (9, 0)
    sm_count: int = 132


def next_power_of_2(number: int) -> int:
    """triton.next_power_of_2."""
    return 1 << (number - 1).bit_length()


def chunk_rows(tokens: int, width: int, vocabulary: int) -> int:
    """Rows of the logits that stand at once: as many as take the memory of [tokens, width]."""
    share = ceil_div(tokens, ceil_div(vocabulary, width))
    return min(next_power_of_2(share), tokens)


def causal_loss(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, device: LigerDevice) -> torch.Tensor:
    """LigerForCausalLMLoss: hidden [B, S, H], head weight [V, H], labels [B, S]; the mean over tokens."""
    padded = F.pad(labels, (0, 1), value=IGNORED)
    shifted = padded[..., 1:].contiguous()
    rows = hidden.view(-1, hidden.shape[-1])
    loss: torch.Tensor = FusedLinearCrossEntropy.apply(rows, weight, shifted.view(-1), device)
    return loss


class FusedLinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients, chunk by chunk, in forward: logits never stand whole."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, device: LigerDevice
    ) -> torch.Tensor:
        tokens, width = rows.shape
        size = chunk_rows(tokens, width, weight.shape[0])
        grad_rows = torch.zeros_like(rows)
        grad_weight = torch.zeros_like(weight) if rows.requires_grad and weight.requires_grad else None
        losses = torch.zeros(tokens, dtype=torch.float32, device=rows.device)
        counted = target != IGNORED  # held to the end, as Liger's function does
        torch.sum(counted)
        storage = rows.new_empty(size, weight.shape[0]) if _in_one_type(rows, weight) else None
        for start in range(0, tokens, size):
            chunk = rows[start : start + size]
            logits = _logits(chunk, weight, storage)
            part = losses[start : start + size]
            _loss_and_gradient_in_place(logits, part)
            if rows.requires_grad:
                _to_rows(logits, weight, grad_rows[start : start + size], storage is not None)
            if grad_weight is not None:
                _to_weight(logits, chunk, grad_weight, device)
            del logits, chunk
        del storage
        loss = torch.sum(losses)
        ctx.save_for_backward(grad_rows.detach(), None if grad_weight is None else grad_weight.detach())
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None, None]:
        """A gradient other than one scales both in place."""
        grad_rows, grad_weight = ctx.saved_tensors
        torch.eq(grads[0], torch.ones((), device=grads[0].device))
        return grad_rows, grad_weight, None, None


def _in_one_type(rows: torch.Tensor, weight: torch.Tensor) -> bool:
    """_can_use_mm_out: products go to one buffer for all chunks unless autocast would convert the operands."""
    if rows.dtype != weight.dtype:
        return False
    return not torch.is_autocast_enabled("cuda") or rows.dtype == torch.get_autocast_dtype("cuda")


def _logits(chunk: torch.Tensor, weight: torch.Tensor, storage: torch.Tensor | None) -> torch.Tensor:
    if storage is None:
        return torch.matmul(chunk, weight.t())
    logits = storage[: chunk.shape[0]]
    torch.ops.aten.mm.out(chunk, weight.t(), out=logits)
    return logits


def _loss_and_gradient_in_place(logits: torch.Tensor, losses: torch.Tensor) -> None:
    """liger_cross_entropy_kernel writes the gradient over the logits."""
    logits.mul_(1)
    losses.zero_()


def _to_rows(logits: torch.Tensor, weight: torch.Tensor, grad_rows: torch.Tensor, out: bool) -> None:
    if out and logits.dtype == grad_rows.dtype:
        torch.ops.aten.mm.out(logits, weight, out=grad_rows)
    else:
        grad_rows.copy_(torch.matmul(logits, weight))


def _to_weight(logits: torch.Tensor, chunk: torch.Tensor, grad_weight: torch.Tensor, device: LigerDevice) -> None:
    """One product added in place, from compute capability 8 on; before, a product and its fp32 copy."""
    fused = device.capability >= (8, 0) and logits.dtype in _HALF
    if fused and grad_weight.dtype in (torch.float32, logits.dtype):
        rows = chunk if chunk.dtype == logits.dtype else chunk.to(logits.dtype)
        torch.ops.aten.mm.out(logits.t(), rows, out=_seen_as(grad_weight, logits.dtype))
        return
    grad_weight.add_(torch.mm(logits.t(), chunk).float())


def _seen_as(accumulator: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A stretch of the accumulator's own memory: addmm adds 16-bit products to an fp32 one without a temporary
    (out_dtype), which the meta device does not know.
    """
    return accumulator if accumulator.dtype == dtype else accumulator.view(dtype)[:, : accumulator.shape[1]]


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """liger_cross_entropy, in place of `torch.nn.functional.cross_entropy`: logits [N, V], target [N]."""
    loss: torch.Tensor = InPlaceCrossEntropy.apply(logits, target)
    return loss


class InPlaceCrossEntropy(torch.autograd.Function):
    """Keeps nothing but the logits, over which forward writes their gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        losses = torch.zeros(logits.shape[0], dtype=logits.dtype, device=logits.device)
        counted = target != IGNORED
        torch.sum(counted)
        # The asserted bounds of the targets.
        (target * counted).max()
        (target * counted).min()
        _loss_and_gradient_in_place(logits, losses)
        loss = torch.sum(losses)
        ctx.save_for_backward(logits.detach())
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (gradient,) = ctx.saved_tensors
        torch.eq(grads[0], torch.ones((), device=grads[0].device))
        return gradient, None
