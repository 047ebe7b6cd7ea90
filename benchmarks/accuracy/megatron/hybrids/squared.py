"""Layers of experts with a squared ReLU (megatron/core/transformer/moe/experts.py: TEGroupedMLP;
fusions/fused_weighted_squared_relu.py).

Custom functions have untyped contexts, hence Any.
"""

from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.experts.grouped import GroupedExperts
from gpu_plan.planner.trace.megatron.experts.layer import ExpertLayer
from gpu_plan.planner.trace.megatron.products.norms import Norm


class _WeightedSquare(torch.autograd.Function):
    """WeightedSquaredReLUFunction: the input and the weight of each row are kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weights)
        out = torch.empty_like(x)
        torch.ops.aten.mul.out(x, x, out=out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, weights = ctx.saved_tensors
        of_input, of_weights = torch.empty_like(x), torch.empty_like(weights)
        torch.ops.aten.mul.out(grads[0], x, out=of_input)
        return of_input, of_weights


class _Squared(GroupedExperts):
    """A rank's experts in one grouped product, without a gate."""

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        wide = self.linear_fc1(x)
        out: torch.Tensor = self.linear_fc2(_WeightedSquare.apply(wide, weights.unsqueeze(-1)))
        return out


class SquaredExpertLayer(nn.Module):
    """moe_layer.py: MoELayer behind its norm. A dense squared ReLU keeps its input as GELU does (core/activations.py,
    compiled by core/jit.py), so that shared experts are the planner's own."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        self.pre_mlp_layernorm = Norm(model.hidden, bias=model.norm == "layer")
        self.mlp = ExpertLayer(model, layout)
        self.mlp.experts = _Squared(model, layout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.mlp(self.pre_mlp_layernorm(x))
        return found
