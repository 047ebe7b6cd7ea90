"""Layers that predict further tokens, on the last stage (megatron/core/transformer/multi_token_prediction.py).

MultiTokenPredictionLayer, MultiTokenPredictionBlock and process_mtp_loss at d98e8a64dd. Custom functions have untyped
contexts, hence Any.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.group import gather
from gpu_plan.planner.trace.megatron.loss import losses_of
from gpu_plan.planner.trace.megatron.products.linear import Linear, shared_of
from gpu_plan.planner.trace.megatron.products.norms import Norm
from gpu_plan.planner.trace.megatron.recompute import Recomputed


class _Regrouped(torch.autograd.Function):
    """gather_from_tensor_model_parallel_region, then scatter_to_sequence_parallel_region: every rank's columns of all
    tokens, and of those this rank's tokens."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layout: Layout) -> torch.Tensor:
        ctx.layout = layout
        whole = torch.cat(gather(x, layout.tensor).chunk(layout.tensor, dim=0), dim=-1)
        return whole.chunk(layout.tensor, dim=0)[0].clone() if layout.sequence else whole

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        layout: Layout = ctx.layout
        whole = gather(grads[0], layout.tensor) if layout.sequence else grads[0]
        return whole.chunk(layout.tensor, dim=-1)[0].contiguous(), None


class _Scaled(torch.autograd.Function):
    """MTPLossAutoScaler: the loss hangs on what goes on to the head."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(loss)
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return grads[0], torch.ones_like(ctx.saved_tensors[0])


class PredictionLayer(nn.Module):
    """One further token: its embedding beside the hidden state of the token before, projected, through one layer."""

    def __init__(self, model: Architecture, layout: Layout, layer: nn.Module) -> None:
        super().__init__()
        biased = model.norm == "layer"
        self.enorm, self.hnorm = (Norm(model.hidden, bias=biased) for _ in range(2))
        self.linear_eh_proj = Linear(2 * model.hidden, model.hidden // layout.tensor, shared_of(layout), "column")
        self.mtp_model_layer = layer
        self.final_layernorm = Norm(model.hidden, bias=biased)
        self._layout = layout

    def forward(self, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        if self._layout.recompute == "full":
            again: torch.Tensor = Recomputed.apply(self._through, embedded, hidden)
            return again
        return self._through(embedded, hidden)

    def _through(self, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        found = torch.cat((self.enorm(embedded), self.hnorm(hidden)), -1)
        found = self.linear_eh_proj(found)
        if self._layout.tensor > 1:
            found = _Regrouped.apply(found, self._layout)
        out: torch.Tensor = self.final_layernorm(self.mtp_model_layer(found))
        return out


def predicted(
    layers: Iterable[nn.Module], embed: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ids: torch.Tensor,
    positions: torch.Tensor, hidden: torch.Tensor,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """The decoder's hidden states and each layer's, parts of one tensor (MultiTokenPredictionBlock.forward)."""
    found = [hidden]
    for layer in layers:
        ids, positions = torch.roll(ids, -1, -1), torch.roll(positions, -1, -1)
        found.append(layer(embed(ids, positions), found[-1]))
    parts: tuple[torch.Tensor, ...] = torch.cat(found, dim=0).chunk(len(found), dim=0)
    return parts


def with_losses(
    parts: tuple[torch.Tensor, ...], head: Callable[[torch.Tensor], torch.Tensor], labels: torch.Tensor,
    mask: torch.Tensor, layout: Layout,
) -> torch.Tensor:  # fmt: skip
    """The decoder's hidden states, on which the further tokens' losses hang (process_mtp_loss)."""
    hidden, labels = parts[0], labels.clone()
    for part in parts[1:]:
        logits = head(part)
        labels, mask = torch.roll(labels, -1, -1), torch.roll(mask, -1, -1)
        loss = mask * losses_of(logits, labels, layout)
        with torch.no_grad():
            torch.argmax(logits, dim=-1)
        del logits
        hidden = _Scaled.apply(hidden, 0.1 * loss / mask.sum())
    return hidden
