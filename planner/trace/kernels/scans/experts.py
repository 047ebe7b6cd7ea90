"""Experts that transformers visits one by one, in a loop whose shapes depend on the routing."""

from collections.abc import Callable
from typing import Any

import torch

Forward = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def evenly_routed(forward: Forward) -> Forward:
    """`forward(self, hidden_states, top_k_index, top_k_weights)` of an experts class, its tokens spread evenly.

    The class's own loop runs (transformers models/dbrx/modeling_dbrx.py: DbrxExperts.forward); only the indices,
    [tokens, experts per token], are known ones, made of operators so that their values can be followed.
    """

    def forward_evenly(
        self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        choices = torch.arange(top_k_index.numel(), device=top_k_index.device) % self.num_experts
        return forward(self, hidden_states, choices.view(top_k_index.shape), top_k_weights)

    return forward_evenly
