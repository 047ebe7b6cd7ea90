"""The head, and the loss over a vocabulary that tensor parallel ranks share.

megatron/core/tensor_parallel/layers.py: LinearWithGradAccumulationAndAsyncCommunication,
tensor_parallel/cross_entropy.py: _VocabParallelCrossEntropy, fusions/fused_cross_entropy.py. Custom functions have
untyped contexts, hence Any.
"""

from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.group import all_sum, gather_into
from gpu_plan.planner.trace.megatron.local import GatheredLinear
from gpu_plan.planner.trace.megatron.products.linear import dummy_of, shared_of


class _CrossEntropy(torch.autograd.Function):
    """The logits in fp32 become probabilities in place, and these the gradient, in place too; autograd brings it to
    the logits' own type."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor, ranks: int) -> torch.Tensor:
        wide = logits.float()
        largest = torch.max(wide, dim=-1)[0]
        if ranks > 1:
            all_sum(largest, ranks)
        wide -= largest.unsqueeze(dim=-1)
        mask = (target < 0) | (target >= wide.shape[-1])
        masked = target.clone() - 0
        flat = masked.view(-1)
        chosen = torch.empty(target.shape, dtype=torch.float32, device=target.device)
        torch.exp(wide, out=wide)
        total = wide.sum(dim=-1)
        if ranks > 1:
            all_sum(chosen, ranks)
            all_sum(total, ranks)
        loss = torch.log(total) - chosen
        wide.div_(total.unsqueeze(dim=-1))
        ctx.save_for_backward(wide, mask, flat)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        wide, mask, _ = ctx.saved_tensors
        update = 1.0 - mask.view(-1).float()
        del update
        wide.mul_(grads[0].unsqueeze(dim=-1))
        return wide, None, None


class _FusedCrossEntropy(torch.autograd.Function):
    """fused_cross_entropy.py: _VocabParallelCrossEntropy: the same in compiled kernels; the gradient is made in the
    logits' own type by the last of them.

    torch.compile does not put the chosen tokens' part (`grad_2d[arange_1d, masked_target_1d] -= softmax_update`) into
    the probabilities: what it makes of that is `index_put`, not `index_put_` (the graph of torch 2.13 behind its last
    passes), so that a copy in fp32 stands beside them, of which the gradient is made.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor, ranks: int) -> torch.Tensor:
        wide = logits.float()
        both = torch.empty((2, *target.shape), dtype=torch.float32, device=target.device)
        if ranks > 1:
            all_sum(both, ranks)
        wide.sub_(1.0)
        mask = torch.empty(target.shape, dtype=torch.bool, device=target.device)
        flat = torch.empty(target.numel(), dtype=target.dtype, device=target.device)
        ctx.save_for_backward(wide, mask, flat)
        return both[0] - both[1]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        wide, _, _ = ctx.saved_tensors
        less = wide.clone()
        return less.to(torch.bfloat16), None, None


class _TeCrossEntropy(torch.autograd.Function):
    """transformer_engine/pytorch/cross_entropy.py: the gradient takes the logits' own place in the forward pass."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor, ranks: int) -> torch.Tensor:
        rows = logits.shape[0] * logits.shape[1]
        loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
        sums = torch.empty(rows * 3, dtype=torch.float32, device=logits.device)
        if ranks > 1:
            found = torch.empty(rows * 3 * ranks, dtype=torch.float32, device=logits.device)
            gather_into(found, sums, ranks)
        logits.mul_(1.0)
        ctx.save_for_backward(logits.detach())
        return loss.view(target.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        (logits,) = ctx.saved_tensors
        logits.mul_(1.0)
        return logits, None, None


_LOSSES: dict[str, Any] = {"native": _FusedCrossEntropy, "te": _TeCrossEntropy}


class Head(nn.Module):
    """ColumnParallelLinear over this rank's part of the padded vocabulary; a GPT's has no bias."""

    fuses = True
    """Whether its weight's gradient may go straight into the buffer."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        rows = model.padded_vocabulary(layout.tensor) // layout.tensor
        self.weight = nn.Parameter(torch.empty(rows, model.hidden, dtype=torch.bfloat16, device="meta"))
        self._shared = shared_of(layout)

    def forward(self, x: torch.Tensor, gathered: torch.Tensor | None, bias: torch.Tensor | None = None) -> torch.Tensor:
        buffer = gathered if self._shared.gathers else None
        out: torch.Tensor = GatheredLinear.apply(
            x, self.weight, dummy_of(self, self.weight), buffer, self._shared, True, bias
        )
        return out


def losses_of(logits: torch.Tensor, labels: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Of every token, [samples, tokens] (language_module.py: compute_language_model_loss)."""
    labels = labels.transpose(0, 1).contiguous()
    losses: torch.Tensor = _LOSSES.get(layout.cross_entropy, _CrossEntropy).apply(logits, labels, layout.tensor)
    return losses.transpose(0, 1).contiguous()


def loss_of(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Of one micro batch: the mean over its tokens (pretrain_gpt.py: loss_func)."""
    losses = losses_of(logits, labels, layout)
    found: torch.Tensor = torch.sum(losses.view(-1).float() * mask.view(-1))
    return found
