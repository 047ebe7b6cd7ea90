"""Attention of context parallel ranks (`--cp-comm-type`): keys and values that go round, or heads for tokens.

transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py of release 2.11. Tensors are [sequence,
batch, heads, head size]; what is sent goes beside the products. Custom functions have untyped contexts, hence Any.
"""

from typing import Any

import torch

from gpu_plan.planner.trace.megatron.attending.kernels import Saved, attend, attend_backward


class Ring(torch.autograd.Function):
    """AttnFuncWithCPAndKVP2P: keys and values go round, and those that came last are kept.

    Of the ranks of a ring the last: each of its steps but the first is all its queries beside the first half of another
    rank's keys.
    """

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, steps: int, flash: bool
    ) -> torch.Tensor:
        came = [torch.cat((k.reshape(-1), v.reshape(-1)))]
        outs: list[torch.Tensor] = []
        rows = None
        for step in range(steps):
            if step + 1 < steps:
                came.append(torch.empty_like(came[step]))
            found = attend(q, *_parts(came[step], k, v, half=step > 0), scale, causal=step == 0, flash=flash)
            outs.append(found.out)
            rows = found.rows if rows is None else rows
        out = torch.empty(outs[0].shape, dtype=q.dtype, device=q.device)
        torch.ops.aten.add.out(outs[0], outs[-1], out=out)
        ctx.save_for_backward(q, came[-1], out, rows)
        ctx.scale, ctx.steps, ctx.flash, ctx.like = scale, steps, flash, (k.shape, v.shape)
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
            whole = step == ctx.steps - 1
            k, v = (k, v) if whole else (k[: k.shape[0] // 2], v[: v.shape[0] // 2])
            seed = torch.empty(1, dtype=torch.int64, device=q.device)
            found = attend_backward(
                grad, Saved(q, k, v, out, rows, seed, seed), ctx.scale, causal=whole, flash=ctx.flash
            )
            torch.ops.aten.add.out(of_query, found[0], out=of_query)
            del found  # `dq_, dk_, dv_ = None, None, None` before the next
        sums = buffers[0][1]
        return of_query, sums[:count].view(k_shape), sums[count:].view(v_shape), None, None, None


def _parts(kv: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, half: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values in a buffer that came from another rank: all of them, or of the first half of its tokens."""
    keys, values = kv[: k.numel()].view(k.shape), kv[k.numel() :].view(v.shape)
    return (keys[: k.shape[0] // 2], values[: k.shape[0] // 2]) if half else (keys, values)


class Exchanged(torch.autograd.Function):
    """AttnFuncWithCPAndQKVOA2A (Ulysses): every rank takes all tokens of its share of the heads.

    Queries, keys, values and the output are kept as the kernel had them; the output that is handed on, of this rank's
    own tokens, is another tensor.
    """

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, ranks: int, flash: bool
    ) -> torch.Tensor:
        q, k, v = _to_heads([q, k, v], ranks)
        found = attend(q, k, v, scale, causal=True, flash=flash)
        ctx.save_for_backward(q, k, v, *found)
        ctx.scale, ctx.ranks, ctx.flash = scale, ranks, flash
        (out,) = _to_tokens([found.out], ranks)
        return out.reshape(*out.shape[:2], -1)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        saved = Saved(*ctx.saved_tensors)
        grad = grads[0].view(-1, saved.q.shape[1], saved.q.shape[2] * ctx.ranks, saved.q.shape[3])
        (grad,) = _to_heads([grad], ctx.ranks)
        found = list(attend_backward(grad, saved, ctx.scale, causal=True, flash=ctx.flash))
        return (*_to_tokens(found, ctx.ranks), None, None, None)


def _to_heads(own: list[torch.Tensor], ranks: int) -> list[torch.Tensor]:
    """flash_attn_a2a_communicate before attention: laid out by rank, received, and its chunks put in order; one is
    laid out while the one before is on its way."""
    sent: list[Any] = list(own)
    came: list[Any] = [None] * len(own)
    for step in range(len(own) + 2):
        if 0 < step <= len(own):
            came[step - 1] = torch.empty_like(sent[step - 1])
        if step > 1:
            x = came[step - 2]
            x = torch.cat((x,), dim=0)  # index_select of the chunks
            came[step - 2] = x.view(-1, *x.shape[2:])
        if step < len(own):
            x = sent[step]
            x = x.view(*x.shape[:-2], ranks, x.shape[-2] // ranks, x.shape[-1])
            sent[step] = x.movedim(-3, 0).contiguous()
    return came


def _to_tokens(own: list[torch.Tensor], ranks: int) -> list[torch.Tensor]:
    """flash_attn_a2a_communicate after attention: chunks put in order, received, and heads laid beside one another."""
    sent: list[Any] = list(own)
    came: list[Any] = [None] * len(own)
    for step in range(len(own) + 2):
        if 0 < step <= len(own):
            came[step - 1] = torch.empty_like(sent[step - 1])
        if step < len(own):
            x = sent[step]
            x = x.reshape(ranks, x.shape[0] // ranks, *x.shape[1:])
            sent[step] = torch.cat((x,), dim=0)
        if step > 1:
            x = came[step - 2].movedim(0, -3).contiguous()
            came[step - 2] = x.view(*x.shape[:2], -1, x.shape[-1])
    return came
