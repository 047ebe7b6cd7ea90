"""FlashAttention-2 on meta: what its functions save and return.

Dao-AILab/flash-attention 2.x flash_attn/flash_attn_interface.py (FlashAttnFunc, FlashAttnVarlenFunc); torch's
`_flash_attention_forward` is the same kernel with the same layout [batch, sequence, heads, head size] and the same
autograd formula.
"""

from typing import Any

import torch

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.flash.operands import kernel_operands


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> torch.Tensor:
    """Attention over [batch, sequence, heads, head size], the result in the same shape.

    InputError for what the real kernel refuses: fp32 operands, heads larger than 256.
    """
    return _run(q, k, v, None, None, q.shape[1], k.shape[1], dropout_p, causal, softmax_scale, window_size)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention over sequences laid end to end, [tokens, heads, head size]; errors as `flash_attn_func`."""
    longest = int(max_seqlen_q), int(max_seqlen_k)
    return _run(q, k, v, cu_seqlens_q, cu_seqlens_k, *longest, dropout_p, causal, softmax_scale, window_size)


def _run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    starts_q: torch.Tensor | None,
    starts_k: torch.Tensor | None,
    longest_q: int,
    longest_k: int,
    dropout: float,
    causal: bool,
    scale: float | None,
    window: tuple[int, int],
) -> torch.Tensor:
    head_dim, missing = q.shape[-1], -q.shape[-1] % 8
    q, k, v = kernel_operands(q, k, v)
    out: torch.Tensor = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        starts_q,
        starts_k,
        longest_q,
        longest_k,
        dropout,
        causal,
        False,
        scale=scale,
        window_size_left=None if window[0] < 0 else window[0],
        window_size_right=None if window[1] < 0 else window[1],
    )[0]
    return out[..., :head_dim] if missing else out


def flash_attn_with_kvcache(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Decoding with a cache; no training step calls it."""
    raise InputError("flash attention with a paged cache is not traced")
