"""Attention between a rank's heads: Transformer Engine's backends.

transformer_engine/pytorch/attention/dot_product_attention of release 2.11 (backends.py: FusedAttnFunc,
FlashAttention, UnfusedDotProductAttention; softmax.py: FusedScaleMaskSoftmax). Tensors are [sequence, batch,
heads, head size].
"""

from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.attending.context import Exchanged, Ring
from gpu_plan.planner.trace.megatron.attending.kernels import Saved, attend, attend_backward
from gpu_plan.planner.trace.megatron.functions import ScaledSoftmax


class _Fused(torch.autograd.Function):
    """cuDNN's or flash attention's: queries, keys, values, output and the scale of each row are kept."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, flash: bool) -> torch.Tensor:
        found = attend(q, k, v, scale, causal=True, flash=flash)
        ctx.save_for_backward(q, k, v, *found)
        ctx.scale, ctx.flash = scale, flash
        # backends.py: FlashAttention.forward ends in `output.contiguous()`: of several samples, whose own output the
        # kernel keeps sample by sample, a copy.
        return found.out.reshape(*q.shape[:2], -1).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        saved = Saved(*ctx.saved_tensors)
        grad = grads[0].view(saved.out.shape)
        return (*attend_backward(grad, saved, ctx.scale, causal=True, flash=ctx.flash), None, None)


class Attention(nn.Module):
    """Core attention of one rank's heads."""

    def __init__(self, layout: Layout, head_dim: int) -> None:
        super().__init__()
        self._kind, self._ranks = layout.attention, layout.context
        self._shares = Exchanged if layout.context_comm == "a2a" else Ring
        self._scale = head_dim**-0.5
        self.dropout = nn.Dropout(layout.attention_dropout)
        self.padded = False
        """Whether what padded tokens ask for is set to zero behind the softmax (`attn_mask_type` padding)."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self._ranks > 1:
            went: torch.Tensor = self._shares.apply(q, k, v, self._scale, self._ranks, self._kind == "flash")
            return went
        if self._kind in ("fused", "flash"):
            if not all(x.is_contiguous() for x in (q, k, v)) and not _interleaved(q, k, v):
                q, k, v = (x.contiguous() for x in (q, k, v))  # utils.py: get_qkv_layout
            if self._kind == "flash" and q.shape[1] > 1:
                q, k, v = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (q, k, v))
            found: torch.Tensor = _Fused.apply(q, k, v, self._scale, self._kind == "flash")
            return found
        if not all(x.is_contiguous() for x in (q, k, v)) and not _interleaved(q, k, v):
            q, k, v = (x.contiguous() for x in (q, k, v))
        return self.unfused(q, k, v)

    def unfused(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """UnfusedDotProductAttention, of tensors that lie as it takes them."""
        rows, batch, heads, _ = q.shape
        if k.shape[2] != heads:
            k, v = (x.repeat_interleave(heads // x.shape[2], dim=2) for x in (k, v))
        q = q.reshape(rows, batch * heads, -1)
        k = k.reshape(k.shape[0], batch * heads, -1)
        scores = torch.empty(batch * heads, rows, k.shape[0], dtype=q.dtype, device=q.device)
        scores = torch.baddbmm(
            scores, q.transpose(0, 1), k.transpose(0, 1).transpose(1, 2), beta=0.0, alpha=self._scale
        )
        probabilities = ScaledSoftmax.apply(scores.view(batch, heads, rows, -1))
        del scores
        if self.padded:
            mask = torch.empty(batch, 1, rows, k.shape[0], dtype=torch.bool, device=q.device)
            probabilities = probabilities.masked_fill(mask, 0)
        probabilities = self.dropout(probabilities)
        v = v.reshape(v.shape[0], batch * heads, -1)
        found = torch.bmm(probabilities.view(batch * heads, rows, -1), v.transpose(0, 1))
        found = found.view(batch, heads, rows, -1).permute(2, 0, 1, 3).contiguous()
        return found.view(rows, batch, -1)


def _interleaved(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether the three lie beside each other head by head in one storage (layout `sbh3d`), which is taken as it is."""
    storages = {x.untyped_storage()._cdata for x in (q, k, v)}
    return len(storages) == 1 and q.stride() == k.stride() == v.stride() and q.shape == k.shape == v.shape
