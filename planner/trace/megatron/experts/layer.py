"""A layer's experts: the router, those that are chosen, and those that every token goes to (moe_layer.py: MoELayer)."""

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.experts.dispatch import dispatcher_of
from gpu_plan.planner.trace.megatron.experts.grouped import GroupedExperts, SequentialExperts
from gpu_plan.planner.trace.megatron.experts.router import Router
from gpu_plan.planner.trace.megatron.layers import Mlp
from gpu_plan.planner.trace.megatron.local import Gathers, LocalMlp
from gpu_plan.planner.trace.megatron.products.linear import shared_of
from gpu_plan.planner.trace.megatron.recompute import Recomputed


class ExpertLayer(Gathers):
    """Takes what the norm before it puts out, [tokens, samples, hidden]."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        assert model.experts is not None
        shared = model.experts.shared_width
        self._shared_again = layout.runs_again("shared_experts")
        self.router = Router(model, layout)
        self.dispatcher = dispatcher_of(model.experts, layout)
        self.experts: nn.Module = (GroupedExperts if layout.grouped else SequentialExperts)(model, layout)
        self.shared_experts: nn.Module | None = None
        if shared and layout.local:
            self.shared_experts = LocalMlp(model, shared_of(layout), shared // layout.tensor)
        elif shared:
            self.shared_experts = Mlp(model, layout, shared, norm=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        beside = None
        if self.shared_experts is not None:
            beside = Recomputed.apply(self.shared_experts, x) if self._shared_again else self.shared_experts(x)
        weights, chosen = self.router(x)
        self.dispatcher.gathered = self.gathered
        rows, picked = self.dispatcher.send(x.view(-1, x.shape[-1]), weights, chosen)
        came, picked = self.dispatcher.arrive(rows, picked)
        out = self.dispatcher.leave(self.experts(came, picked))
        del came
        out = self.dispatcher.back(out, x.view(-1, x.shape[-1]).shape).view(x.shape)
        return out if beside is None else out + beside
