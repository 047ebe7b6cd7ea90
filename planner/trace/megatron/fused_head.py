"""verl's head and log-probabilities in one: no logits stand, in backward a slice of their gradients.

verl 0.8.0.dev (b178a3cd): verl/models/mcore/model_forward_fused.py (_fused_GPTModel_forward),
verl/utils/kernel/linear_cross_entropy.py (LinearCrossEntropy), verl/utils/kernel/kernels.py (efficient_entropy_forward,
efficient_entropy_backward by _Split_Dlogits_N, its default). Triton's kernels make nothing themselves: what stands is
what the functions around them ask for. Entropies come with the log-probabilities, asked for or not.
"""

from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.group import GatheredRows, all_sum

_OPERATORS = torch.library.Library("gpu_plan", "FRAGMENT")
_OPERATORS.define("head_products(Tensor rows, Tensor weight, Tensor(a!) into) -> ()")
_OPERATORS.impl("head_products", lambda rows, weight, into: None, "CompositeExplicitAutograd")
"""A kernel that multiplies rows by words and keeps less than their product (recording/operators/work.py counts it)."""
FUSED = "verl-fused"
_SPLIT, _SLICE = 1024, 9504
"""Words of one split of the forward pass, and of one slice of the backward pass."""


class _LogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, ranks: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.shape = hidden.shape
        rows = hidden.view(-1, hidden.shape[-1])
        labels = labels.view(-1)
        splits = -(-weight.shape[0] // _SPLIT)
        like = {"dtype": torch.float32, "device": hidden.device}
        chosen, entropy = torch.empty(len(rows), **like), torch.empty(len(rows), **like)
        largest, sums = torch.empty_like(entropy), torch.empty(len(rows) * 2, **like)
        parts = [torch.empty(len(rows), splits, **like) for _ in range(3)]
        torch.ops.gpu_plan.head_products(rows, weight, parts[0])
        if ranks > 1:
            own = torch.empty(len(rows), **like)
            kept = parts[0].clone()
            all_sum(parts[0], ranks)
            all_sum(own, ranks)
            all_sum(sums, ranks)
            del own, kept
        del parts
        ctx.save_for_backward(rows, weight, labels, largest, sums)
        return chosen, entropy

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        rows, weight, _, _, _ = ctx.saved_tensors
        of_rows, of_weight = torch.empty_like(rows), torch.empty_like(weight)
        words = weight.shape[0]
        slices = -(-words // _SLICE)
        of_logits = torch.empty(len(rows), _SLICE, dtype=rows.dtype, device=rows.device)
        for number in range(slices):
            first, last = number * _SLICE, min((number + 1) * _SLICE, words)
            torch.ops.gpu_plan.head_products(rows, weight[first:last], of_logits)
            if number == slices - 1:
                of_logits = of_logits[:, : last - first].contiguous()
            if number == 0:
                torch.matmul(of_logits, weight[first:last], out=of_rows)
            else:
                of_rows += torch.matmul(of_logits, weight[first:last])
            torch.matmul(of_logits.T, rows, out=of_weight[first:last])
        return of_rows.view(ctx.shape), of_weight, None, None


class FusedHead(nn.Module):
    """This rank's part of the padded vocabulary, from which no logits are made."""

    fuses = False

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        rows = model.padded_vocabulary(layout.tensor) // layout.tensor
        self.weight = nn.Parameter(torch.empty(rows, model.hidden, dtype=torch.bfloat16, device="meta"))
        self._layout = layout

    def forward(self, x: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> Any:
        """The loss; without gradients log-probabilities and entropies, [tokens] each."""
        layout = self._layout
        # The output keeps the last layer's own tokens beside those of all ranks.
        whole = GatheredRows.apply(x, layout.tensor) if layout.sequence and layout.tensor > 1 else x
        found = _LogProbabilities.apply(whole, self.weight, labels, layout.tensor)
        chosen, entropy = found[0], found[1]
        if not torch.is_grad_enabled():
            return chosen, entropy
        return torch.sum(chosen * mask.view(-1)) - torch.sum(entropy * mask.view(-1))
