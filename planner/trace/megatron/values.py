"""The last layer of verl's critic: one number for each token, of every token on each rank.

mbridge (10cb17f), utils/layer.py: LinearForLastLayer in the head's place (utils/post_creation_callbacks.py:
make_value_model), which nothing shares out: its output in fp32 is gathered where ranks share tokens. What the loss
makes of a value (verl/trainer/ppo/core_algos.py: compute_value_loss), some numbers of 4 bytes a token, is not laid out.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.group import gather

VALUES = "verl-value"


class _Gathered(torch.autograd.Function):
    """tensor_parallel/mappings.py: _GatherFromSequenceParallelRegion; each rank's own rows of the gradient come back
    (tensor_parallel_output_grad=False)."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, ranks: int) -> torch.Tensor:
        ctx.rows = values.shape[0]
        return gather(values, ranks)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return grads[0][: ctx.rows].contiguous(), None


class ValueHead(nn.Module):
    """A plain layer of one row."""

    fuses = False

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, model.hidden, dtype=torch.bfloat16, device="meta"))
        self._ranks = layout.tensor if layout.sequence else 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values [samples, tokens, 1] in fp32 (GPTModel._postprocess)."""
        values = F.linear(x, self.weight).float()
        if self._ranks > 1:
            gathered: torch.Tensor = _Gathered.apply(values, self._ranks)
            values = gathered
        return values.transpose(0, 1).contiguous()


def value_loss_of(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Of one micro batch; without gradients the values are what is given."""
    if not torch.is_grad_enabled():
        return values
    return torch.sum(values.view(-1) * mask.view(-1))
