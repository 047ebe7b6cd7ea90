"""Log-probabilities as verl, OpenRLHF, open-instruct and LLaMA-Factory v1 take them: of all logits, or of chunks.

flash-attn 2.8 flash_attn/ops/triton/cross_entropy.py: CrossEntropyLoss; verl 0.8.0.dev (b178a3cd)
verl/workers/actor/dp_actor.py: DataParallelPPOActor._forward_micro_batch (use_remove_padding),
verl/utils/torch_functional.py: logprobs_from_logits, entropy_from_logits (compiled: its rows stand, no further logits),
verl/utils/experimental/torch_functional.py: FusedLinearForPPOFunction (impl_backend torch); OpenRLHF 0.11.0
openrlhf/models/actor.py: Actor.forward, openrlhf/models/utils.py: log_probs_from_logits; open-instruct of 2026-08
(e6c3044a) open_instruct/padding_free_collator.py: calculate_per_token_logps, open_instruct/grpo_utils.py:
forward_for_logprobs, open_instruct/model_utils.py: log_softmax_and_gather (compiled); LLaMA-Factory of 2026-08
(ff6d4d12) src/llamafactory/v1/trainers/dpo_trainer.py: compute_loss. What is made of the log-probabilities [B, S] is a
few vectors. Custom functions have untyped contexts, hence Any.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.utils import ModelOutput

_CHUNK = 512
"""FusedLinearForPPO.chunk_size: tokens."""


@dataclass
class ScoredOutput(ModelOutput):
    """A loss, and the log-probabilities [tokens] that it is made of."""

    loss: torch.Tensor | None = None
    log_probs: torch.Tensor | None = None


def verl_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ScoredOutput:
    """hidden [B, S, H], labels [B, S]: the gradient is written over the logits, which keep the head's type."""
    logits, targets = _rows(hidden, head, labels)
    logits.div_(1.0)
    return _scored(-_CrossEntropy.apply(logits, targets, True)[0])


def verl_entropy_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ScoredOutput:
    """The same where the entropy counts in the loss: its gradient and that of the logits stand beside them."""
    logits, targets = _rows(hidden, head, labels)
    logits.div_(1.0)
    scored = -_CrossEntropy.apply(logits, targets, False)[0]
    return _scored(scored - _Entropy.apply(logits))


def verl_fused_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ScoredOutput:
    """use_fused_kernels: 512 tokens' logits at a time, again in backward."""
    targets = torch.roll(labels.reshape(-1), shifts=-1)
    return _scored(_Chunked.apply(hidden.reshape(-1, hidden.shape[-1]), head.weight, targets)[0])


def openrlhf_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ScoredOutput:
    """Logits in fp32, a gradient of their own, and that of the head's type."""
    logits, targets = _rows(hidden, head, labels)
    logits = logits.to(torch.float32)
    return _scored(-_CrossEntropy.apply(logits, targets, False)[0])


def open_instruct_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ScoredOutput:
    """calculate_per_token_logps: logits in fp32, and their log-softmax, all of it."""
    logits = head(hidden)
    shifted = torch.full_like(labels, -100)
    shifted[:, :-1] = labels[:, 1:]
    logits = logits.to(torch.float32)
    safe = shifted.clamp(min=0)
    return _scored(torch.gather(logits.log_softmax(-1), 2, safe.unsqueeze(2)).squeeze(2))


def open_instruct_grpo_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ScoredOutput:
    """forward_for_logprobs: the model's logits stand beside those over the temperature until it returns."""
    outputs = head(hidden)
    logits = outputs / 1.0
    return _scored(_Gathered.apply(logits[:, :-1], labels[:, 1:].clone()))


def llamafactory_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ScoredOutput:
    """compute_loss: logits, their fp32, and a copy for its figures stand while the reference's logits are scored."""
    outputs = head(hidden)
    logits = outputs.float()
    figures = logits[..., :-1, :].contiguous()
    scored = _cross_entropies(logits, labels)
    figures.mean(dim=-1)
    with torch.no_grad():
        _cross_entropies(head(hidden).float(), labels)
    return _scored(scored)


def llamafactory_alone_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ScoredOutput:
    """The same without a reference, and what the reference itself makes."""
    outputs = head(hidden)
    logits = outputs.float()
    figures = logits[..., :-1, :].contiguous()
    scored = _cross_entropies(logits, labels)
    figures.mean(dim=-1)
    return _scored(scored)


def _cross_entropies(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """_extract_chosen_rejected_logps: a copy of its own, torch's cross-entropy."""
    shifted = logits[..., :-1, :].contiguous()
    targets = labels[..., 1:].contiguous()
    return -functional.cross_entropy(shifted.view(-1, shifted.size(-1)), targets.view(-1), reduction="none")


def _rows(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [B*S, V], each with the next token's id."""
    logits = head(hidden)
    return logits.reshape(-1, logits.shape[-1]), torch.roll(labels, shifts=-1, dims=1).reshape(-1)


def _scored(log_probs: torch.Tensor) -> ScoredOutput:
    return ScoredOutput(loss=-log_probs.mean(), log_probs=log_probs)


class _CrossEntropy(torch.autograd.Function):
    """flash-attn's CrossEntropyLoss: rows of fp32, and the gradient in or beside the logits."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, labels: torch.Tensor, inplace: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        losses, lse, z_losses = (logits.new_empty(logits.shape[0], dtype=torch.float32) for _ in range(3))
        ctx.save_for_backward(logits, lse, labels)
        ctx.mark_non_differentiable(z_losses)
        ctx.inplace = inplace
        return losses, z_losses

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        logits = ctx.saved_tensors[0]
        return (logits if ctx.inplace else torch.empty_like(logits)), None, None


class _Entropy(torch.autograd.Function):
    """entropy_from_logits under torch.compile: two rows of fp32 are kept, backward makes one gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        entropy, largest, total = (logits.new_empty(logits.shape[0], dtype=torch.float32) for _ in range(3))
        ctx.save_for_backward(logits, largest, total)
        return entropy

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(ctx.saved_tensors[0])


class _Gathered(torch.autograd.Function):
    """log_softmax_and_gather under torch.compile: logits and rows of fp32 are kept, backward makes one gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        largest, total = (logits.new_empty(targets.shape, dtype=torch.float32) for _ in range(2))
        ctx.save_for_backward(logits, targets, largest, total)
        return logits.new_empty(targets.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.empty_like(ctx.saved_tensors[0]), None


class _Chunked(torch.autograd.Function):
    """FusedLinearForPPOFunction with torch's own operations."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        log_probs, entropy = hidden.new_zeros(hidden.shape[0]), hidden.new_zeros(hidden.shape[0])
        for start in range(0, hidden.shape[0], _CHUNK):
            rows = slice(start, start + _CHUNK)
            log_probs[rows], entropy[rows] = _chunk(hidden[rows], weight, targets[rows])
        ctx.save_for_backward(hidden, weight, targets)
        return log_probs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, targets = ctx.saved_tensors
        of_hidden = torch.zeros_like(hidden) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        assert grads[0] is not None
        for start in range(0, hidden.shape[0], _CHUNK):
            rows = slice(start, start + _CHUNK)
            h, v = _chunk_back(grads[0][rows], hidden[rows], weight, targets[rows])
            if of_hidden is not None:
                of_hidden[rows] += h
            if of_weight is not None:
                of_weight += v
        return of_hidden, of_weight, None


def _chunk(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """_fused_linear_for_ppo_fwd."""
    logits = (hidden @ weight.t()) / 1.0
    dtype = logits.dtype
    logits = logits.to(torch.float32)
    probs = logits.softmax(dim=-1)
    log_probs = logits.log_softmax(dim=-1)
    scored = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    entropy = torch.logsumexp(logits, dim=-1) - torch.sum(probs * logits, dim=-1)
    return scored.to(dtype), entropy.to(dtype)


def _chunk_back(
    grad: torch.Tensor, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """_fused_linear_for_ppo_bwd without a gradient of the entropy."""
    logits = (hidden @ weight.t()) / 1.0
    dtype = logits.dtype
    logits = logits.to(torch.float32)
    probs = logits.softmax(dim=-1)
    one_hot = torch.zeros_like(logits).scatter_(-1, targets.unsqueeze(-1), 1)
    slope = 0 + grad.to(torch.float32).unsqueeze(-1) * (one_hot - probs)
    slope = slope.to(dtype) / 1.0
    return slope @ weight, slope.t() @ hidden
