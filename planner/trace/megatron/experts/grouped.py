"""A rank's experts: one grouped product, or one after the other (megatron/core/transformer/moe/experts.py).

transformer_engine/pytorch/module/grouped_linear.py of release 2.11: _GroupedLinear. Custom functions have untyped
contexts, hence Any.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.functions import WeightedSwiGlu
from gpu_plan.planner.trace.megatron.local import LocalMlp
from gpu_plan.planner.trace.megatron.products.linear import Linear, Shared, call_of, dummy_of, hold_float8, shared_of
from gpu_plan.planner.trace.megatron.products.scaled import ScaledGrouped
from gpu_plan.planner.trace.megatron.recompute import WithoutOutput
from gpu_plan.planner.trace.parallel.tensor import OWN_EXPERTS


class _Grouped(torch.autograd.Function):
    """Keeps its input, of which each expert takes its rows."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dummy: Any, *weights: torch.Tensor) -> torch.Tensor:
        out = torch.empty((x.shape[0], weights[0].shape[0]), dtype=x.dtype, device=x.device)
        _products(x, weights[0].t(), out, len(weights))
        ctx.save_for_backward(x, *weights)
        ctx.dummy = dummy
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        grad = grads[0].contiguous()
        of_input = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        _products(grad, weights[0], of_input, len(weights))
        if ctx.dummy is None:
            own = [torch.empty_like(weight) for weight in weights]
            _sums(grad, x, own)
        else:
            own = [ctx.dummy.detach() for _ in weights]
            _sums(grad, x, own)
        return of_input, None, *own


def _products(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, count: int) -> None:
    """Each expert's rows by its weight, into what is there: one batched product of equally many rows."""
    if x.shape[0] % count:
        torch.mm(x, weight, out=out)
        return
    each = x.shape[0] // count
    weights = weight.unsqueeze(0).expand(count, *weight.shape)
    torch.bmm(x.view(count, each, -1), weights, out=out.view(count, each, -1))


def _sums(grad: torch.Tensor, x: torch.Tensor, own: list[torch.Tensor]) -> None:
    """Gradients of the weights, into what is there."""
    each = max(1, x.shape[0] // len(own))
    for number, weight in enumerate(own):
        rows = slice(number * each, (number + 1) * each)
        torch.mm(grad[rows].t(), x[rows], out=weight)


class GroupedLinear(nn.Module):
    """TEGroupedLinear: a weight for each of a rank's experts; sizes are those of this rank."""

    def __init__(self, count: int, inputs: int, outputs: int, shared: Shared, *, own: bool, kept: bool = False) -> None:
        super().__init__()
        self._kept = kept and shared.float8 is not None and not shared.float8.delayed
        """Whether the input stays in 16 bits: it is run again, and kept by nobody."""
        self.count, self._shared = count, shared
        for number in range(count):
            weight = nn.Parameter(torch.empty(outputs, inputs, dtype=torch.bfloat16, device="meta"))
            self.register_parameter(f"weight{number}", weight)
        hold_float8(self, count * outputs, inputs, shared)
        mark_experts(self, own=own)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = [self.get_parameter(f"weight{number}") for number in range(self.count)]
        if self._shared.float8 is not None:
            call = call_of(self, weights[0], self._shared, "none", kept=self._kept)
            scaled: torch.Tensor = ScaledGrouped.apply(x, dummy_of(self, weights[0]), call, *weights)
            return scaled
        out: torch.Tensor = _Grouped.apply(x, dummy_of(self, weights[0]), *weights)
        return out


def mark_experts(module: nn.Module, *, own: bool) -> None:
    """extensions/transformer_engine.py: _set_expert_parameter_attributes: whether they are reduced among ranks of the
    same experts alone."""
    if own:
        for parameter in module.parameters():
            setattr(parameter, OWN_EXPERTS, True)


def are_apart(layout: Layout) -> bool:
    """Whether experts have data parallel groups of their own (TELinear.__init__: use_expert_pgs)."""
    return layout.expert > 1 or layout.expert_tensor != layout.tensor


class GroupedExperts(nn.Module):
    """TEGroupedMLP."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        assert model.experts is not None
        count, own = model.experts.count // layout.expert, are_apart(layout)
        width = model.experts.width // layout.expert_tensor
        shared = shared_of(layout)
        self.linear_fc1 = GroupedLinear(count, model.hidden, width * (2 if model.gated else 1), shared, own=own)
        again = layout.runs_again("moe_act")
        self.linear_fc2 = GroupedLinear(count, width, model.hidden, shared, own=own, kept=again)
        self._again = layout.runs_again("moe_act")
        self._gated = model.gated

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        wide = self.linear_fc1(x)
        if not self._again:
            out: torch.Tensor = self.linear_fc2(weighted(wide, weights.unsqueeze(-1), gated=self._gated))
            return out
        part = WithoutOutput()
        with part.kept_elsewhere():
            out = self.linear_fc2(part.run(partial(weighted, gated=self._gated), wide, weights.unsqueeze(-1)))
        part.again_before(out)
        return out


def weighted(wide: torch.Tensor, weights: torch.Tensor, *, gated: bool) -> torch.Tensor:
    """The activation, and each row's weight: one kernel where it is gated (fused_bias_swiglu.py)."""
    if gated:
        found: torch.Tensor = WeightedSwiGlu.apply(wide, weights)
        return found
    narrow = nn.functional.gelu(wide)
    return (narrow * weights).to(wide.dtype)


class _Expert(nn.Module):
    """mlp.py: MLP of one expert."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        assert model.experts is not None
        width = model.experts.width // layout.expert_tensor
        # What an expert's ranks send each other goes through the dispatcher.
        alone = replace(shared_of(layout), ranks=1, sequence=False)
        self.linear_fc1 = Linear(model.hidden, width * (2 if model.gated else 1), alone, "none")
        self.linear_fc2 = Linear(width, model.hidden, alone, "none")
        self._gated = model.gated
        mark_experts(self, own=are_apart(layout))

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        wide = self.linear_fc1(x)
        narrow = weighted(wide, weights.unsqueeze(-1), gated=self._gated)
        del wide
        out: torch.Tensor = self.linear_fc2(narrow)
        return out


def _expert(model: Architecture, layout: Layout) -> nn.Module:
    if not layout.local:
        return _Expert(model, layout)
    assert model.experts is not None
    local = LocalMlp(model, Shared(1, False, layout.fused_gradients), model.experts.width // layout.expert_tensor)
    mark_experts(local, own=are_apart(layout))
    return local


class SequentialExperts(nn.Module):
    """SequentialMLP."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        assert model.experts is not None
        count = model.experts.count // layout.expert
        self.local_experts = nn.ModuleList(_expert(model, layout) for _ in range(count))

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        count = len(self.local_experts)
        if count == 1:
            only: torch.Tensor = self.local_experts[0](x, weights)
            return only
        each = [x.shape[0] // count + (number < x.shape[0] % count) for number in range(count)]
        rows, shares = torch.split(x, each), torch.split(weights, each)
        outs = [expert(*given) for expert, *given in zip(self.local_experts, rows, shares, strict=True)]
        return torch.cat(outs, dim=0)
