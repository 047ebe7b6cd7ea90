"""The loss of verl's actor over a vocabulary that tensor parallel ranks share.

verl 0.8.0.dev (b178a3cd): verl/workers/actor/megatron_actor.py: MegatronPPOActor.forward_backward_batch
(logits_processor), verl/utils/megatron/tensor_parallel.py (vocab_parallel_log_probs_from_logits,
vocab_parallel_entropy).
What the policy's loss makes of a log-probability of each token is not laid out: some numbers of 4 bytes a token, where
the vocabulary has tens of thousands. Custom functions have untyped contexts, hence Any.
"""

from typing import Any

import torch

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.group import all_sum
from gpu_plan.planner.trace.megatron.loss import losses_of

_WITH_ENTROPY = "verl-entropy"


def of_verl(layout: Layout) -> bool:
    """Whether the loss is that of verl's actor."""
    return layout.cross_entropy in ("verl", _WITH_ENTROPY)


class _Entropy(torch.autograd.Function):
    """_VocabParallelEntropy: keeps the logits and probabilities beside them, which its gradient takes the place of;
    the product of both is summed as it is made (torch.compile)."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, ranks: int) -> torch.Tensor:
        largest = logits.max(dim=-1, keepdim=True).values
        if ranks > 1:
            all_sum(largest, ranks)
        probabilities = (logits - largest).exp_()
        total = probabilities.sum(dim=-1, keepdim=True)
        if ranks > 1:
            all_sum(total, ranks)
        probabilities.div_(total)
        mean = torch.empty_like(total)
        if ranks > 1:
            all_sum(mean, ranks)
        found = largest + total.log() - mean
        ctx.save_for_backward(logits, probabilities, mean)
        return found.squeeze(dim=-1)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        logits, probabilities, mean = ctx.saved_tensors
        logits.sub_(mean)
        probabilities.mul_(logits)
        probabilities.mul_(grads[0].unsqueeze(dim=-1))
        logits.add_(mean)
        probabilities.mul_(-1)
        return probabilities, None


def actor_loss_of(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, layout: Layout) -> Any:
    """Of one micro batch, from fp32 logits [tokens, samples, own words], which a temperature divides in place.

    Log-probabilities are taken in the logits' own place, or in a copy's where the entropy needs them too. Without
    gradients they are what is given, [samples, tokens], and the entropies beside them.
    """
    logits.div_(1.0)
    entropy = None
    if layout.cross_entropy == _WITH_ENTROPY:
        own, logits = logits, logits.clone()
        entropy = _Entropy.apply(own, layout.tensor)
        del own
    chosen = -losses_of(logits, labels, layout)
    if not torch.is_grad_enabled():
        return chosen if entropy is None else (chosen, entropy.transpose(0, 1).contiguous())
    found = torch.sum(chosen.reshape(-1) * mask.view(-1))
    if entropy is not None:
        found = found - torch.sum(entropy.transpose(0, 1).reshape(-1) * mask.view(-1))
    return found
