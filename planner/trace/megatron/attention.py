"""Attention between a rank's heads: Transformer Engine's backends.

transformer_engine/pytorch/attention/dot_product_attention of release 2.11 (backends.py: FusedAttnFunc,
FlashAttention, UnfusedDotProductAttention; softmax.py: FusedScaleMaskSoftmax). Tensors are [sequence, batch,
heads, head size].
"""

from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.functions import ScaledSoftmax


class _Fused(torch.autograd.Function):
    """cuDNN's or flash attention's: queries, keys, values, output and the scale of each row are kept."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, flash: bool) -> torch.Tensor:
        query, key, value = (x.permute(1, 2, 0, 3) for x in (q, k, v))
        if flash:
            found = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, True, False, scale=scale)
        else:
            found = torch.ops.aten._scaled_dot_product_cudnn_attention(
                query, key, value, None, True, 0.0, True, False, scale=scale
            )
        out, rows, *_, seed, offset, _ = found
        out = out.permute(2, 0, 1, 3)
        ctx.save_for_backward(q, k, v, out, rows, seed, offset)
        ctx.scale, ctx.flash = scale, flash
        # backends.py: FlashAttention.forward ends in `output.contiguous()`: of several samples, whose own output the
        # kernel keeps sample by sample, a copy.
        return out.reshape(*q.shape[:2], -1).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        q, k, v, out, rows, seed, offset = ctx.saved_tensors
        query, key, value, result = (x.permute(1, 2, 0, 3) for x in (q, k, v, out))
        grad = grads[0].view(out.shape).permute(1, 2, 0, 3)
        length = q.shape[0]
        if ctx.flash:
            found = torch.ops.aten._scaled_dot_product_flash_attention_backward(
                grad,
                query,
                key,
                value,
                result,
                rows,
                None,
                None,
                length,
                length,
                0.0,
                True,
                seed,
                offset,
                scale=ctx.scale,
            )
        else:
            found = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
                grad,
                query,
                key,
                value,
                result,
                rows,
                seed,
                offset,
                None,
                None,
                None,
                length,
                length,
                0.0,
                True,
                scale=ctx.scale,
            )
        return (*(x.permute(2, 0, 1, 3) for x in found[:3]), None, None)


class _Ring(torch.autograd.Function):
    """context_parallel.py: AttnFuncWithCPAndKVP2P: keys and values go round, and those that came last are kept.

    Of the ranks of a ring the last: each of its steps but the first is all its queries beside the first half of another
    rank's keys. What is sent goes beside the products.
    """

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, steps: int) -> torch.Tensor:
        came = [torch.cat((k.reshape(-1), v.reshape(-1)))]
        outs, rows = [], None
        for step in range(steps):
            if step + 1 < steps:
                came.append(torch.empty_like(came[step]))
            found = _attend(q, *_parts(came[step], k, v, half=step > 0), scale, causal=step == 0)
            outs.append(found[0].permute(2, 0, 1, 3))
            rows = found[1] if rows is None else rows
        out = torch.empty(outs[0].shape, dtype=q.dtype, device=q.device)
        torch.ops.aten.add.out(outs[0], outs[-1], out=out)
        ctx.save_for_backward(q, came[-1], out, rows)
        ctx.scale, ctx.steps, ctx.like = scale, steps, (k.shape, v.shape)
        return out.view(*q.shape[:2], -1)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        q, last, out, rows = ctx.saved_tensors
        grad = grads[0].contiguous().view(out.shape)
        of_query = torch.empty_like(q)
        buffers = [torch.empty((2, *last.shape), dtype=last.dtype, device=last.device) for _ in range(2)]
        k_shape, v_shape = ctx.like
        count = k_shape.numel()
        for step in range(ctx.steps):
            kv = buffers[step % 2][0]
            k, v = kv[:count].view(k_shape), kv[count:].view(v_shape)
            k, v = (k, v) if step == ctx.steps - 1 else (k[: k.shape[0] // 2], v[: v.shape[0] // 2])
            query, key, value, result, gradient = (x.permute(1, 2, 0, 3) for x in (q, k, v, out, grad))
            seed = torch.empty(1, dtype=torch.int64, device=q.device)
            found = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
                gradient, query, key, value, result, rows, seed, seed, None, None, None,
                query.shape[2], key.shape[2], 0.0, step == ctx.steps - 1, scale=ctx.scale,
            )  # fmt: skip
            torch.ops.aten.add.out(of_query, found[0].permute(2, 0, 1, 3), out=of_query)
        sums = buffers[0][1]
        return of_query, sums[:count].view(k_shape), sums[count:].view(v_shape), None, None


def _parts(kv: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, half: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values in a buffer that came from another rank: all of them, or of the first half of its tokens."""
    keys, values = kv[: k.numel()].view(k.shape), kv[k.numel() :].view(v.shape)
    return (keys[: k.shape[0] // 2], values[: k.shape[0] // 2]) if half else (keys, values)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, *, causal: bool) -> tuple[Any, ...]:
    query, key, value = (x.permute(1, 2, 0, 3) for x in (q, k, v))
    found: tuple[Any, ...] = torch.ops.aten._scaled_dot_product_cudnn_attention(
        query, key, value, None, True, 0.0, causal, False, scale=scale
    )
    return found


class Attention(nn.Module):
    """Core attention of one rank's heads."""

    def __init__(self, layout: Layout, head_dim: int) -> None:
        super().__init__()
        self._kind, self._steps = layout.attention, layout.context
        self._scale = head_dim**-0.5
        self.dropout = nn.Dropout(layout.attention_dropout)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self._steps > 1:
            went: torch.Tensor = _Ring.apply(q, k, v, self._scale, self._steps)
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
        return self._unfused(q, k, v)

    def _unfused(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
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
        probabilities = self.dropout(probabilities)
        v = v.reshape(v.shape[0], batch * heads, -1)
        found = torch.bmm(probabilities.view(batch * heads, rows, -1), v.transpose(0, 1))
        found = found.view(batch, heads, rows, -1).permute(2, 0, 1, 3).contiguous()
        return found.view(rows, batch, -1)


def _interleaved(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether the three lie beside each other head by head in one storage (layout `sbh3d`), which is taken as it is."""
    storages = {x.untyped_storage()._cdata for x in (q, k, v)}
    return len(storages) == 1 and q.stride() == k.stride() == v.stride() and q.shape == k.shape == v.shape
