"""Multi-latent attention on one rank (megatron/core/transformer/multi_latent_attention.py: MLASelfAttention).

Queries, keys and values go through projections down and up; the fused rotary embedding (fusions/
fused_mla_yarn_rope_apply.py) turns queries in place and makes keys and values of what comes up. Custom functions have
untyped contexts, hence Any.
"""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gpu_plan.planner.megatron.architecture import Architecture, LatentAttention
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.attending.core import Attention
from gpu_plan.planner.trace.megatron.group import GatheredRows
from gpu_plan.planner.trace.megatron.products.linear import Linear, NormLinear, Shared, shared_of
from gpu_plan.planner.trace.megatron.recompute import WithoutOutput


class _TurnedInPlace(torch.autograd.Function):
    """_FusedMLARoPEInplace: nothing is kept but the angles."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(1.0)
        return x.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        grad = grads[0].contiguous()
        grad.mul_(1.0)
        return grad.view(grad.shape)


class _KeysAndValues(torch.autograd.Function):
    """_FusedMLARoPEKVSplit: the turned part is one for all heads."""

    @staticmethod
    def forward(
        ctx: Any, both: torch.Tensor, turned: torch.Tensor, latent: LatentAttention
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.shapes = (both.shape, turned.shape)
        shape = both.shape[:-1]
        keys = both.new_empty(*shape, latent.head_dim + latent.rotary_dim)
        values = both.new_empty(*shape, latent.value_dim)
        keys.zero_()
        values.zero_()
        return keys, values

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        of_keys, of_values = (grad.contiguous() for grad in grads)
        both, turned = (of_keys.new_empty(shape) for shape in ctx.shapes)
        both.zero_()
        del of_values
        return both, turned, None


def _up(latent: LatentAttention, inputs: int, outputs: int, shared: Shared, *, norm_bias: bool) -> nn.Module:
    """gpt_layer_specs.py: the norm within the product, or none (`qk_layernorm`)."""
    if latent.normed:
        return NormLinear(inputs, outputs, shared, norm_bias=norm_bias)
    return Linear(inputs, outputs, shared, "column")


class LatentSelfAttention(nn.Module):
    """Takes what the norm before it puts out, [tokens, samples, hidden]."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        assert model.latent is not None
        self._latent, self._layout = latent, layout = model.latent, layout
        shared, rms = shared_of(layout), model.norm == "layer"
        self._heads = model.heads // layout.tensor
        self._size = latent.head_dim + latent.rotary_dim
        outputs = self._heads * self._size
        # set_for_recompute_input_layernorm: what is run again is kept by nobody.
        again = layout.runs_again("layernorm")
        if latent.query_rank is None:
            self.linear_q_proj = Linear(model.hidden, outputs, shared, "column")
        else:
            self.linear_q_down_proj = Linear(model.hidden, latent.query_rank, shared, "none", kept=again)
            self.linear_q_up_proj = _up(latent, latent.query_rank, outputs, shared, norm_bias=rms)
        self.linear_kv_down_proj = Linear(
            model.hidden, latent.key_value_rank + latent.rotary_dim, shared, "none", kept=again
        )
        self.linear_kv_up_proj = _up(
            latent, latent.key_value_rank, self._heads * (latent.head_dim + latent.value_dim), shared, norm_bias=rms
        )
        self.core_attention = Attention(layout, self._size)
        self.linear_proj = Linear(
            self._heads * latent.value_dim, model.hidden, shared, "row", bias=model.biases, apart=True, kept=True
        )
        self._up_again = layout.runs_again("mla_up_proj")
        self._recompute = layout.runs_again("core_attn")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow, compressed, turned = self._narrowed(x)
        if self._up_again:
            part = WithoutOutput()
            with part.kept_elsewhere():
                found = self._attended(*part.run(self._widened, narrow, compressed, turned))
            part.again_before(found)
        else:
            found = self._attended(*self._widened(narrow, compressed, turned))
        del narrow, compressed, turned
        out: torch.Tensor = self.linear_proj(found)
        return out

    def _attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor
        if self._recompute:
            found = checkpoint(self.core_attention, q, k, v, use_reentrant=True)
        else:
            found = self.core_attention(q, k, v)
        return found

    def _narrowed(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`get_query_key_value_tensors` before `qkv_up_proj_and_rope_apply`."""
        latent = self._latent
        narrow = x if latent.query_rank is None else self.linear_q_down_proj(x)
        both = self.linear_kv_down_proj(x)
        compressed, turned = torch.split(both, [latent.key_value_rank, latent.rotary_dim], dim=-1)
        if self._layout.tensor > 1 and self._layout.sequence:
            turned = GatheredRows.apply(turned, self._layout.tensor)
        return narrow, compressed, turned

    def _widened(
        self, narrow: torch.Tensor, compressed: torch.Tensor, turned: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`qkv_up_proj_and_rope_apply`: [tokens, samples, heads, size]."""
        latent = self._latent
        q = self.linear_q_proj(narrow) if latent.query_rank is None else self.linear_q_up_proj(narrow)
        q = q.view(*q.shape[:2], self._heads, self._size)
        wide = self.linear_kv_up_proj(compressed.contiguous())
        wide = wide.view(*wide.shape[:2], self._heads, -1)
        q = _TurnedInPlace.apply(q)
        k, v = _KeysAndValues.apply(wide, turned.unsqueeze(-2), latent)
        return q, k, v
