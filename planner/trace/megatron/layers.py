"""Megatron-core's TransformerLayer on one rank (core/transformer/transformer_layer.py, attention.py, mlp.py)."""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.attending.core import Attention
from gpu_plan.planner.trace.megatron.functions import AddDropped, Gelu, Rotary, SplitLast, SwiGlu
from gpu_plan.planner.trace.megatron.local import local_norm
from gpu_plan.planner.trace.megatron.products.linear import Linear, NormLinear, shared_of
from gpu_plan.planner.trace.megatron.products.norms import Norm
from gpu_plan.planner.trace.megatron.recompute import Recomputed, WithoutOutput


class SelfAttention(nn.Module):
    """attention.py: SelfAttention; the projection's output is grouped by key-value head."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        shared, size = shared_of(layout), model.head_dim
        self._heads, self._groups = model.heads // layout.tensor, max(1, model.groups // layout.tensor)
        self._size, self._rotary = size, model.rotary
        self.linear_qkv = NormLinear(
            model.hidden,
            (self._heads + 2 * self._groups) * size,
            shared,
            norm_bias=model.norm == "layer",
            bias=model.biases or model.query_biases,
        )
        self.q_layernorm = Norm(size, bias=model.norm == "layer") if model.query_norm else None
        self.k_layernorm = Norm(size, bias=model.norm == "layer") if model.query_norm else None
        self.core_attention = Attention(layout, size)
        self.linear_proj = Linear(
            self._heads * size, model.hidden, shared, "row", bias=model.biases, apart=True, kept=True
        )
        self._recompute = layout.runs_again("core_attn")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.linear_qkv(x)
        mixed = mixed.view(*mixed.shape[:2], self._groups, -1)
        each = self._heads // self._groups * self._size
        q, k, v = SplitLast.apply(mixed, (each, self._size, self._size))
        del mixed
        q = q.reshape(*q.shape[:2], -1, self._size)
        if self.q_layernorm is not None and self.k_layernorm is not None:
            q, k = self.q_layernorm(q), self.k_layernorm(k)
        if self._rotary:
            q, k = Rotary.apply(q), Rotary.apply(k)
        if self._recompute:
            found = checkpoint(self.core_attention, q, k, v, use_reentrant=True)
        else:
            found = self.core_attention(q, k, v)
        # attention.py: Attention.forward names queries, keys and values until it returns.
        out: torch.Tensor = self.linear_proj(found)
        return out


class Mlp(nn.Module):
    """mlp.py: MLP."""

    def __init__(self, model: Architecture, layout: Layout, width: int, *, norm: bool = True) -> None:
        super().__init__()
        shared, self._gated, self._fused = shared_of(layout), model.gated, layout.fused_activation
        outputs = width // layout.tensor * (2 if model.gated else 1)
        if norm:
            self.linear_fc1: nn.Module = NormLinear(
                model.hidden, outputs, shared, norm_bias=model.norm == "layer", bias=model.biases, apart=True
            )
        else:
            # moe_layer.py: set_for_recompute_pre_mlp_layernorm.
            again = layout.runs_again("layernorm") and not layout.runs_again("shared_experts")
            self.linear_fc1 = Linear(model.hidden, outputs, shared, "column", bias=model.biases, apart=True, kept=again)
        self.linear_fc2 = Linear(width // layout.tensor, model.hidden, shared, "row", bias=model.biases, apart=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.linear_fc1(x)
        bias: Any = self.linear_fc1.bias
        if self._gated and not self._fused:
            narrow = _gated(wide if bias is None else wide + bias)
        else:
            narrow = (SwiGlu if self._gated else Gelu).apply(wide, bias)
        del wide
        out: torch.Tensor = self.linear_fc2(narrow)
        return out


def _gated(wide: torch.Tensor) -> torch.Tensor:
    """mlp.py: MLP.forward: glu: what is added to the second half is 0, in a copy of its own (glu_linear_offset)."""
    gate, up = torch.chunk(wide, 2, dim=-1)
    return nn.functional.silu(gate) * (up + 0.0)


class Layer(nn.Module):
    """transformer_layer.py: TransformerLayer, attention and MLP each with its residual.

    Where a product does not take the norm in, it stands before it: of latent attention, of experts, and of the local
    layers (gpt_layer_specs.py: get_gpt_layer_with_transformer_engine_submodules, get_gpt_layer_local_submodules).
    """

    def __init__(
        self, model: Architecture, layout: Layout, attention: nn.Module, mlp: nn.Module, *, has_experts: bool
    ) -> None:
        super().__init__()
        apart = layout.local or model.latent is not None
        self.input_layernorm = _norm(model, layout) if apart else None
        self.self_attention = attention
        self.pre_mlp_layernorm = _norm(model, layout) if layout.local or has_experts else None
        self.mlp = mlp
        self._dropout = layout.hidden_dropout
        self._norms_again = layout.runs_again("layernorm")
        self._mlp_again = layout.runs_again("moe" if has_experts else "mlp")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self._normed(self.input_layernorm, self.self_attention, x)
        x = AddDropped.apply(mixed, _bias(self.self_attention, "linear_proj"), x, self._dropout)
        del mixed
        narrow = self._normed(self.pre_mlp_layernorm, self._through_mlp, x)
        found: torch.Tensor = AddDropped.apply(narrow, _bias(self.mlp, "linear_fc2"), x, self._dropout)
        return found

    def _normed(self, norm: Any, run: Any, x: torch.Tensor) -> torch.Tensor:
        """What `run` makes of the normed input, where a norm stands before it; nothing keeps it that is run again."""
        if norm is None or not self._norms_again:
            found: torch.Tensor = run(x if norm is None else norm(x))
            return found
        part = WithoutOutput()
        with part.kept_elsewhere():
            out: torch.Tensor = run(part.run(norm, x))
        part.again_before(out)
        return out

    def _through_mlp(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = Recomputed.apply(self.mlp, x) if self._mlp_again else self.mlp(x)
        return found


def _norm(model: Architecture, layout: Layout) -> nn.Module:
    return local_norm(model) if layout.local else Norm(model.hidden, bias=model.norm == "layer")


def _bias(module: nn.Module, name: str) -> Any:
    return getattr(getattr(module, name, None), "bias", None)
