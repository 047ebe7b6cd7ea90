"""Attention of samples that lie end to end (`qkv_format` thd) and whose tokens context parallel ranks share.

transformer_engine/common/fused_attn/fused_attn_f16_arbitrary_seqlen.cu and utils.cu: a graph is made for a batch and
for tokens that are rounded up. Custom functions have untyped contexts, hence Any.
"""

import math
from typing import Any

import torch

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.attending.context import Ring
from gpu_plan.planner.trace.megatron.attending.core import Attention

_FEW, _STEP = 32, 512
_TOKENS, _MANY_TOKENS = 1024, 32768
_HALF = 2


def rounded_batch(samples: int) -> int:
    """utils.cu: get_max_batch_size."""
    if samples <= _FEW:
        return _FEW
    return int(2 ** math.ceil(math.log2(samples))) if samples <= _STEP else -(-samples // _STEP) * _STEP


def rounded_tokens(tokens: int) -> int:
    """utils.cu: get_max_tokens."""
    if tokens <= _TOKENS:
        return _TOKENS
    if tokens <= _MANY_TOKENS:
        return int(2 ** math.ceil(math.log2(tokens)))
    return -(-tokens // _MANY_TOKENS) * _MANY_TOKENS


def workspace_bytes(samples: int, heads: int, queries: int, keys: int) -> int:
    """Of cuDNN's deterministic gradient: the gradient of every probability in 16 bits (cudnn-frontend,
    scaled_dot_product_flash_attention.h: SDPABackwardNode, required_dp_workspace_bytes, whatever its limit), for the
    rounded batch with the rounded tokens each."""
    return rounded_batch(samples) * heads * rounded_tokens(queries) * rounded_tokens(keys) * _HALF


class _Packed(torch.autograd.Function):
    """Ring, and what its gradient takes beside it while keys and values go round."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *how: Any) -> torch.Tensor:
        *rules, ctx.workspace = how
        found: torch.Tensor = Ring.forward(ctx, q, k, v, *rules)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        taken = torch.empty(ctx.workspace, dtype=torch.uint8, device=grads[0].device)
        found = Ring.backward(ctx, *grads)
        del taken
        return *found, None


class PackedAttention(Attention):
    """Core attention of one rank's heads and tokens."""

    def __init__(self, layout: Layout, head_dim: int) -> None:
        super().__init__(layout, head_dim)
        self._takes = layout.attention == "fused" and layout.deterministic

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Of [tokens of a sample, samples, heads, head size]."""
        (tokens, samples, heads, _), keys = q.shape, k.shape[0]
        taken = workspace_bytes(samples, heads, tokens * samples, keys * samples) if self._takes else 0
        flash = self._kind == "flash"
        found: torch.Tensor = _Packed.apply(q, k, v, self._scale, self._ranks, flash, taken)
        return found
