"""attention.py: CrossAttention: queries of the decoder, keys and values of what the encoder put out."""

from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.attending.core import Attention
from gpu_plan.planner.trace.megatron.functions import AddDropped
from gpu_plan.planner.trace.megatron.layers import Mlp, SelfAttention
from gpu_plan.planner.trace.megatron.local import LocalAttention, LocalCore, LocalLinear, LocalMlp, local_norm
from gpu_plan.planner.trace.megatron.products.linear import Linear, shared_of
from gpu_plan.planner.trace.megatron.products.norms import Norm


class CrossAttention(nn.Module):
    """Linear layers of Transformer Engine or of Megatron-core; keys and values are halves of one product."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        shared, hidden = shared_of(layout), model.hidden
        own = hidden // layout.tensor
        self._heads, self._local = model.heads // layout.tensor, layout.local
        if layout.local:
            self.linear_q: nn.Module = LocalLinear(hidden, own, shared, column=True, bias=True)
            self.linear_kv: nn.Module = LocalLinear(hidden, 2 * own, shared, column=True, bias=True)
            self.core_attention: Any = LocalCore(model, layout)
            self.linear_proj: nn.Module = LocalLinear(own, hidden, shared, column=False, bias=True, apart=True)
        else:
            self.linear_q = Linear(hidden, own, shared, "column", bias=True)
            self.linear_kv = Linear(hidden, 2 * own, shared, "column", bias=True)
            self.core_attention = Attention(layout, model.head_dim)
            self.core_attention.padded = True
            self.linear_proj = Linear(own, hidden, shared, "row", bias=True, apart=True)

    def forward(self, x: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
        mixed = self.linear_kv(encoded)
        k, v = torch.chunk(mixed.view(*mixed.shape[:2], self._heads, -1), 2, dim=-1)
        q = self.linear_q(x)
        q = q.view(*q.shape[:2], self._heads, -1)
        del mixed
        # Halves of one product lie as both take them (dot_product_attention/utils.py: get_qkv_layout, `sbhd_sbh2d`).
        found = self.core_attention(q, k, v) if self._local else self.core_attention.unfused(q, k, v)
        del q, k, v
        out: torch.Tensor = self.linear_proj(found)
        return out


class DecoderLayer(nn.Module):
    """transformer_layer.py: TransformerLayer with attention over the encoder's output (t5_spec.py)."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        shared = shared_of(layout)
        self.input_layernorm = local_norm(model) if layout.local else None
        self.self_attention = LocalAttention(model, layout, shared) if layout.local else SelfAttention(model, layout)
        self.pre_cross_attn_layernorm = local_norm(model) if layout.local else Norm(model.hidden, bias=True)
        self.cross_attention = CrossAttention(model, layout)
        self.pre_mlp_layernorm = local_norm(model) if layout.local else None
        width = model.intermediate
        self.mlp: Any = (
            LocalMlp(model, shared, width // layout.tensor, biases=True) if layout.local else Mlp(model, layout, width)
        )
        self._dropout = layout.hidden_dropout

    def forward(self, x: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
        mixed = self.self_attention(x if self.input_layernorm is None else self.input_layernorm(x))
        x = self._added(mixed, self.self_attention.linear_proj, x)
        mixed = self.cross_attention(self.pre_cross_attn_layernorm(x), encoded)
        x = self._added(mixed, self.cross_attention.linear_proj, x)
        mixed = self.mlp(x if self.pre_mlp_layernorm is None else self.pre_mlp_layernorm(x))
        return self._added(mixed, self.mlp.linear_fc2, x)

    def _added(self, mixed: torch.Tensor, last: Any, residual: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = AddDropped.apply(mixed, last.bias, residual, self._dropout)
        return found


def padded(layers: nn.ModuleList) -> nn.ModuleList:
    """An encoder's layers, which attend both ways but to what is padded (Transformer Engine's alone say so twice)."""
    for module in layers.modules():
        if isinstance(module, Attention):
            module.padded = True
    return layers
