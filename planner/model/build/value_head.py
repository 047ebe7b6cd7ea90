"""A value head beside a language model's own head, on one trunk: the critic of a policy that has none of its own."""

from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError

HEAD = "v_head"
"""The attribute of the model that it is."""
_DROPOUT = 0.1


class ValueHead(nn.Module):
    """One number for each token: hidden states [B, S, H] -> [B, S, 1].

    trl 0.9.6 trl/models/modeling_value_head.py: ValueHead (summary_dropout_prob 0.1, weights in fp32).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(_DROPOUT)
        self.summary = nn.Linear(width, 1)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """hidden_states [B, S, H] in the model's type."""
        output = self.dropout(hidden_states)
        if output.dtype != self.summary.weight.dtype:
            output = output.to(self.summary.weight.dtype)
        found: torch.Tensor = self.summary(output)
        return found


def add_value_head(model: Any) -> None:
    """Puts the head beside the model's own; InputError for a model whose hidden states have no one width."""
    head = model.get_output_embeddings()
    width = getattr(model.config.get_text_config(), "hidden_size", None)
    if head is None or not isinstance(width, int):
        raise InputError(f"{type(model).__name__} has no head and width of a language model: no value head fits it")
    with torch.device("meta"):
        setattr(model, HEAD, ValueHead(width))
