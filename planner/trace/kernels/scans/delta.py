"""The chunked gated delta rule (Qwen3-Next, Qwen3.5) as flash-linear-attention runs it.

Letters in shapes: B batch, L tokens, Hk and Hv key and value heads, K and V head sizes.
"""

from typing import Any

import torch
from torch.autograd import Function

CHUNK = 64


def _wide(like: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """[B, L, Hv, K]: one row of keys per value head."""
    batch, tokens, heads, _ = value.shape
    return torch.empty(batch, tokens, heads, like.shape[-1], dtype=like.dtype, device=like.device)


def _states(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """[B, ceil(L / 64), Hv, K, V]: the state at the start of every chunk."""
    batch, tokens, heads, size = value.shape
    shape = (batch, -(-tokens // CHUNK), heads, key.shape[-1], size)
    return torch.empty(shape, dtype=key.dtype, device=key.device)


class ChunkGatedDeltaRule(Function):
    """fla-org/flash-linear-attention fla/ops/gated_delta_rule/chunk.py: ChunkGatedDeltaRuleFunction."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        decay: torch.Tensor,
        beta: torch.Tensor,
        normalize: bool,
    ) -> torch.Tensor:
        query, key, value, decay, beta = (t.contiguous() for t in (query, key, value, decay, beta))
        norms: list[torch.Tensor | None] = [None, None]
        if normalize:
            query, key = torch.empty_like(query), torch.empty_like(key)
            norms = [torch.empty(t.shape[:-1], dtype=torch.float32, device=t.device) for t in (query, key)]
        cumulative = torch.empty_like(decay, dtype=torch.float32)
        raw = torch.empty(*value.shape[:-1], CHUNK, dtype=torch.float32, device=value.device)
        solved = torch.empty_like(raw, dtype=key.dtype)
        del raw
        w, u = _wide(key, value), torch.empty_like(value)
        states, corrected = _states(key, value), torch.empty_like(u)
        out = torch.empty_like(value)
        del w, u, states, corrected
        ctx.save_for_backward(query, norms[0], key, norms[1], value, cumulative, beta, solved)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        query, query_norm, key, key_norm, value, cumulative, beta, _ = ctx.saved_tensors
        grad = grad.contiguous()
        w, u = _wide(key, value), torch.empty_like(value)
        states, corrected = _states(key, value), torch.empty_like(value)
        del u
        dlocal = torch.empty_like(value)
        dstates, dcorrected = _states(key, value), torch.empty_like(value)
        del dlocal
        dquery, dkey, dw = _wide(query, value), _wide(key, value), torch.empty_like(w)
        ddecay = torch.empty_like(cumulative)
        del states, dstates, corrected
        dkey_local, dvalue = _wide(key, value), torch.empty_like(value)
        dbeta, ddecay_local = torch.empty_like(beta), torch.empty_like(cumulative)
        del dw, w, dcorrected, dkey_local, ddecay_local
        grads = []
        for given, full, norm in ((query, dquery, query_norm), (key, dkey, key_norm)):
            part = full if full.shape == given.shape else torch.empty_like(given)
            grads.append(part if norm is None else torch.empty_like(given))
        return (*grads, dvalue, ddecay, dbeta, None)


def chunk_gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    output_final_state: bool = False,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """query and key [B, L, Hk, K], value [B, L, Hv, V], g and beta [B, L, Hv] -> [B, L, Hv, V], and the last state.

    The state is fp32 [B, Hv, K, V] (fla ops/common/chunk_delta_h.py: chunk_gated_delta_rule_fwd_h), None unless asked.
    """
    last = _last_state(key, value) if output_final_state else None
    return ChunkGatedDeltaRule.apply(query, key, value, g, beta, use_qk_l2norm_in_kernel), last


def recurrent_gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *_: Any,
    output_final_state: bool = False,
    **__: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A token or few: value [B, L, Hv, V] -> [B, L, Hv, V], and the last state.

    fla ops/gated_delta_rule/fused_recurrent.py: fused_recurrent_gated_delta_rule_fwd makes these two alone.
    """
    value = value.contiguous()
    return torch.empty_like(value), _last_state(key, value) if output_final_state else None


def _last_state(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    batch, _, heads, size = value.shape
    return torch.empty(batch, heads, key.shape[-1], size, dtype=torch.float32, device=value.device)
