"""Which experts each token goes to (megatron/core/transformer/moe/router.py: TopKRouter)."""

import math
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture, Experts
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.group import all_sum


class _Gate(torch.autograd.Function):
    """moe_utils.py: RouterGatingLinearFunction: keeps the input and the weight in their own type, whatever type it
    computes in."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.dtype = dtype
        flat = x.reshape(-1, x.shape[-1])
        if dtype == x.dtype:
            return torch.mm(flat, weight.t()).view(*x.shape[:-1], -1)
        # Transformer Engine's product takes 16 bits and puts out the other type.
        out = torch.empty(flat.shape[0], weight.shape[0], dtype=dtype, device=x.device)
        return out.zero_().view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1])
        of_input = torch.mm(grad, weight.to(ctx.dtype))
        of_weight = torch.mm(grad.t(), x.reshape(-1, x.shape[-1]).to(ctx.dtype))
        return of_input.to(x.dtype).view(x.shape), of_weight.to(weight.dtype), None


class _BesideLoss(torch.autograd.Function):
    """moe_utils.py: MoEAuxLossAutoScaler: what passes through brings the auxiliary loss into the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(loss)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        (loss,) = ctx.saved_tensors
        return grads[0], torch.ones_like(loss)


def capacity_of(experts: Experts, layout: Layout, tokens: int) -> int | None:
    """Tokens that one rank sends to one expert at most (moe_utils.py: get_capacity); None: as many as choose it."""
    if layout.capacity is None:
        return None
    return math.ceil(tokens * experts.chosen / experts.count * layout.capacity)


class Router(nn.Module):
    """Scores of every expert, the chosen ones, and the loss that keeps them equally busy."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        assert model.experts is not None
        self._experts, self._layout = model.experts, layout
        self.weight = nn.Parameter(torch.empty(model.experts.count, model.hidden, dtype=torch.bfloat16, device="meta"))
        self._dtype = torch.float32 if layout.wide_router else torch.bfloat16
        if model.experts.biased:
            for name in ("local_tokens_per_expert", "expert_bias"):
                self.register_buffer(name, torch.zeros(model.experts.count, dtype=torch.float32, device="meta"))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights [tokens, experts], zero where an expert is not chosen, and which ones are."""
        samples = x.shape[1]
        logits: torch.Tensor = _Gate.apply(x, self.weight, self._dtype)
        logits = logits.view(-1, self._experts.count)
        if self._experts.balance == "sinkhorn":
            weights, chosen = self._sinkhorn(logits)
        else:
            weights, chosen = self._top(logits)
        weights, chosen = self._dropped(weights, chosen)
        if self._experts.balance in ("aux_loss", "seq_aux_loss") and torch.is_grad_enabled():
            weights = self._balanced(logits, weights, samples)
        return weights, chosen

    def _sinkhorn(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`sinkhorn_load_balancing`; its iterations, whose number data decides, hold two tensors like the logits."""
        with torch.no_grad():
            cost = torch.exp(logits.to(torch.float32))
            normed = cost * 1.0
            _, indices = torch.topk(normed, k=self._experts.chosen, dim=1)
            del cost, normed
        one = self._experts.chosen == 1
        scores = torch.sigmoid(logits) if one else torch.softmax(logits, dim=-1, dtype=torch.float32).type_as(logits)
        chosen = torch.zeros_like(scores).int().scatter(1, indices, 1).bool()
        return scores * chosen, chosen

    def _top(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """moe_utils.py: topk_routing_with_score_function."""
        experts = self._experts
        if experts.score == "sigmoid":
            scores = torch.sigmoid(logits.float())
            _, indices = self._highest(scores + self.get_buffer("expert_bias") if experts.biased else scores)
            scores = torch.gather(scores, dim=1, index=indices)
            picked = scores / (scores.sum(dim=-1, keepdim=True) + 1e-20) if experts.chosen > 1 else scores
        elif experts.first_softmax:
            picked, indices = self._highest(torch.softmax(logits, dim=-1, dtype=torch.float32))
        else:
            highest, indices = self._highest(logits)
            picked = torch.softmax(highest, dim=-1, dtype=torch.float32)
        if experts.scale is not None:
            picked = picked * experts.scale
        picked = picked.type_as(logits)
        chosen = torch.zeros_like(logits).int().scatter(1, indices, 1).bool()
        return torch.zeros_like(logits).scatter(1, indices, picked), chosen

    def _highest(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """moe_utils.py: group_limited_topk, where experts are chosen of some groups alone."""
        experts, tokens = self._experts, scores.shape[0]
        if experts.groups > 1:
            grouped = scores.view(tokens, experts.groups, -1)
            each = max(1, experts.chosen // experts.chosen_groups)
            of_groups = grouped.topk(each, dim=-1)[0].sum(dim=-1)
            best = torch.topk(of_groups, k=experts.chosen_groups, dim=-1, sorted=False)[1]
            mask = torch.zeros_like(of_groups).scatter_(1, best, 1)
            whole = mask.unsqueeze(-1).expand(grouped.shape).reshape(tokens, -1)
            scores = scores.masked_fill(~whole.bool(), float("-inf"))
        values, indices = torch.topk(scores, k=experts.chosen, dim=1)
        return values, indices

    def _dropped(self, weights: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """moe_utils.py: apply_router_token_dropping, padded to the capacity."""
        most = capacity_of(self._experts, self._layout, weights.shape[0])
        if most is None:
            return weights, chosen
        if most > weights.shape[0]:
            kept = torch.ones_like(weights).bool()
        else:
            _, indices = torch.topk(weights, k=most, dim=0, sorted=False)
            kept = torch.zeros_like(weights).scatter(0, indices, 1).bool()
        return weights * kept, kept

    def _balanced(self, logits: torch.Tensor, weights: torch.Tensor, samples: int) -> torch.Tensor:
        """`_apply_aux_loss` and `_apply_seq_aux_loss`."""
        experts = self._experts
        scores = torch.sigmoid(logits.float()) if experts.score == "sigmoid" else logits.float().softmax(dim=-1)
        if experts.score == "sigmoid":
            scores = scores / (scores.sum(dim=-1, keepdim=True) + 1e-20)
        _, indices = torch.topk(scores, k=experts.chosen, dim=1)
        chosen = torch.zeros_like(logits).int().scatter(1, indices, 1).bool()
        if self._experts.balance == "seq_aux_loss":
            scores, chosen = (one.reshape(one.shape[0] // samples, -1) for one in (scores, chosen))
        counts = chosen.sum(dim=0)
        ranks = self._layout.tensor * self._layout.context
        counts = all_sum(counts, ranks) if ranks > 1 else counts
        loss = torch.sum(scores.sum(dim=0) * counts) * 1.0
        passed: torch.Tensor = _BesideLoss.apply(weights, loss)
        return passed
