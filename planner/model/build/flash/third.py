"""FlashAttention-3 with attention sinks on meta: what its functions save and return.

huggingface/kernels-community vllm-flash-attn3/torch-ext/vllm_flash_attn3/flash_attn_interface.py (FlashAttnFunc,
FlashAttnVarlenFunc) and flash-attn/flash_api_stable.cpp (mha_fwd, mha_bwd): the log-sum-exp is fp32, there is no random
state, and backward gives the sinks no gradient.
"""

from typing import Any

import torch

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.flash.operands import kernel_operands

_MOST_SINKS = 64
_OPERATORS = torch.library.Library("gpu_plan", "FRAGMENT")
_OPERATORS.define(
    "flash3_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? starts_q, Tensor? starts_k,"
    " bool is_causal, bool is_local, Tensor? sinks) -> (Tensor, Tensor)"
)
_OPERATORS.define(
    "flash3_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor lse,"
    " Tensor? starts_q, Tensor? starts_k, bool is_causal, bool is_local,"
    " Tensor(a!) grad_query, Tensor(b!) grad_key, Tensor(c!) grad_value) -> ()"
)


def _forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts_q: torch.Tensor | None,
    starts_k: torch.Tensor | None,
    is_causal: bool,
    is_local: bool,
    sinks: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    *batch, tokens, heads, _ = query.shape
    out = torch.empty(*query.shape[:-1], value.shape[-1], dtype=query.dtype, device="meta")
    return out, torch.empty(*batch, heads, tokens, dtype=torch.float32, device="meta")


_OPERATORS.impl("flash3_attention_forward", _forward, "Meta")
_OPERATORS.impl("flash3_attention_backward", lambda *operands: None, "Meta")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        starts: tuple[torch.Tensor | None, torch.Tensor | None],
        masks: tuple[bool, bool],
        sinks: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = torch.ops.gpu_plan.flash3_attention_forward(query, key, value, *starts, *masks, sinks)
        ctx.save_for_backward(query, key, value, out, lse, *starts)
        ctx.masks = masks
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor, *others: Any) -> tuple[Any, ...]:
        query, key, value, out, lse, *starts = ctx.saved_tensors
        grads = tuple(torch.empty_like(operand) for operand in (query, key, value))
        grad_out = grad_out if grad_out.stride(-1) == 1 else grad_out.contiguous()
        torch.ops.gpu_plan.flash3_attention_backward(grad_out, query, key, value, out, lse, *starts, *ctx.masks, *grads)
        return (*grads, None, None, None)


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
    s_aux: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over [batch, sequence, heads, head size], with its log-sum-exp [batch, heads, sequence] in fp32.

    InputError for what the real kernel refuses: fp32 operands, heads larger than 256, more than 64 sinks, sinks that
    are not bf16.
    """
    return _run(q, k, v, (None, None), causal, window_size, s_aux)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
    s_aux: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over sequences laid end to end, [tokens, heads, head size]; errors as `flash_attn_func`."""
    return _run(q, k, v, (cu_seqlens_q, cu_seqlens_k), causal, window_size, s_aux)


def _run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    starts: tuple[torch.Tensor | None, torch.Tensor | None],
    causal: bool,
    window: tuple[int, int],
    sinks: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    head_dim = q.shape[-1]
    q, k, v = kernel_operands(q, k, v)
    if sinks is not None and (sinks.numel() > _MOST_SINKS or sinks.dtype != torch.bfloat16):
        raise InputError(
            f"flash attention takes up to {_MOST_SINKS} attention sinks in bf16, not {sinks.numel()} in {sinks.dtype}:"
            " use --attention eager"
        )
    left = -1 if window[0] >= k.shape[1 if k.dim() == 4 else 0] - 1 else window[0]
    local = left >= 0 or (window[1] >= 0 and not causal)
    out, lse = _Attention.apply(q, k, v, starts, (causal and not local, local), sinks)
    return (out if out.shape[-1] == head_dim else out[..., :head_dim]), lse
