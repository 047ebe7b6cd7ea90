"""Attention kernels on tensors of [sequence, batch, heads, head size], by the operators that torch has of them.

transformer_engine/pytorch/attention/dot_product_attention/backends.py: FusedAttnFunc, FlashAttention. What a kernel
needs for a while is in planner/trace/kernels/attention.py.
"""

from typing import NamedTuple

import torch

_ORDER, _BACK = (1, 2, 0, 3), (2, 0, 1, 3)


class Attended(NamedTuple):
    """An output, the scale of each of its rows, and the seed of what is dropped."""

    out: torch.Tensor
    rows: torch.Tensor
    seed: torch.Tensor
    offset: torch.Tensor


class Saved(NamedTuple):
    """What a forward leaves to its backward."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    rows: torch.Tensor
    seed: torch.Tensor
    offset: torch.Tensor


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, *, causal: bool, flash: bool) -> Attended:
    """Flash attention's kernel, or cuDNN's."""
    query, key, value = (x.permute(_ORDER) for x in (q, k, v))
    aten = torch.ops.aten
    if flash:
        found = aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal, False, scale=scale)
    else:
        found = aten._scaled_dot_product_cudnn_attention(query, key, value, None, True, 0.0, causal, False, scale=scale)
    out, rows, *_, seed, offset, _ = found
    return Attended(out.permute(_BACK), rows, seed, offset)


def attend_backward(
    grad: torch.Tensor, saved: Saved, scale: float, *, causal: bool, flash: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of queries, keys and values."""
    query, key, value, out, gradient = (x.permute(_ORDER) for x in (saved.q, saved.k, saved.v, saved.out, grad))
    lengths = query.shape[2], key.shape[2]
    aten = torch.ops.aten
    if flash:
        found = aten._scaled_dot_product_flash_attention_backward(
            gradient, query, key, value, out, saved.rows, None, None, *lengths, 0.0, causal,
            saved.seed, saved.offset, scale=scale,
        )  # fmt: skip
    else:
        found = aten._scaled_dot_product_cudnn_attention_backward(
            gradient, query, key, value, out, saved.rows, saved.seed, saved.offset, None, None, None,
            *lengths, 0.0, causal, scale=scale,
        )  # fmt: skip
    of_query, of_key, of_value = (x.permute(_BACK) for x in found[:3])
    return of_query, of_key, of_value
