"""PPO of a policy whose critic is a head on its own trunk, as TRL had it and LLaMA-Factory runs it.

trl 0.9.6 trl/models/modeling_value_head.py: AutoModelForCausalLMWithValueHead.forward (all hidden states, logits in
fp32), trl/core.py: logprobs_from_logits, entropy_from_logits, masked_mean, masked_var, trl/trainer/ppo_trainer.py:
PPOTrainer.loss, train_minibatch; LLaMA-Factory of 2026-08 (ff6d4d12) src/llamafactory/train/ppo/trainer.py:
CustomPPOTrainer.batched_forward_pass, get_rewards. torch.cat copies the logits of its one pass, and the copy stands
until the next pass gives its own. No host reads: a ratio beyond its threshold changes no memory.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.nn import functional
from transformers.utils import ModelOutput

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.model.build.value_head import HEAD
from gpu_plan.planner.trace.kernels.stack_losses.policies import ScoredOutput

_CLIP, _COEFFICIENT = 0.2, 0.1
"""PPOConfig.cliprange and cliprange_value, vf_coef."""


@dataclass
class ValuedOutput(ModelOutput):
    """Logits [B, S, V] in fp32 and values [B, S] of one pass, before the loop makes a loss of them."""

    logits: torch.Tensor | None = None
    values: torch.Tensor | None = None
    targets: torch.Tensor | None = None
    """Ids [B, S]."""
    rollout: tuple[torch.Tensor, ...] | None = None
    """What was said of these samples before: log-probabilities, values, advantages, returns and mask, [B, S-1]."""
    kept: tuple[torch.Tensor, ...] | None = None
    """What else the loop names until the next pass: log-probabilities, masks, figures."""


@contextlib.contextmanager
def with_values(model: Any, variant: str) -> Iterator[None]:
    """For the time of a pass, the policy answers as TRL's wrapper does. UsageError where it has no value head."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not hasattr(base, HEAD):
        raise UsageError(f"--set loss.variant={variant}: {type(base).__name__} has no value head beside its own")
    with mock.patch.object(base, "forward", _forward(base)):
        yield


def _forward(base: Any) -> Callable[..., Any]:
    def forward(input_ids: torch.Tensor, labels: torch.Tensor | None = None, **others: Any) -> Any:
        rollout = _rollout(input_ids) if torch.is_grad_enabled() else None
        logits, values = _wrapped(base, input_ids, others)
        if torch.is_grad_enabled():
            return ValuedOutput(logits=logits, values=values, targets=labels, rollout=rollout)
        if labels is None:
            return ScoredOutput(log_probs=values)
        log_probs = _log_probs(logits, labels)
        return ScoredOutput(loss=log_probs.mean(), log_probs=log_probs)

    return forward


def _wrapped(base: Any, input_ids: torch.Tensor, others: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """AutoModelForCausalLMWithValueHead.forward: what the model gave stands until both heads are done."""
    given = {**others, "use_cache": False, "output_hidden_states": True}
    outputs = base.base_model(input_ids=input_ids, **given)
    logits = base.get_output_embeddings()(outputs.last_hidden_state)
    values = getattr(base, HEAD)(outputs.hidden_states[-1]).squeeze(-1)
    return logits if logits.dtype == torch.float32 else logits.float(), values


def _rollout(input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A micro batch's rows of what the passes before the update gave."""
    rows, length = input_ids.shape[0], input_ids.shape[1] - 1
    figures = (input_ids.new_zeros(rows, length, dtype=torch.float32) for _ in range(4))
    return (*figures, input_ids.new_zeros(rows, length))


def ppo_loss(outputs: ValuedOutput) -> torch.Tensor:
    """The loss of one micro batch; `outputs` holds the logits' copy from then on, as the loop does."""
    logits, values, targets = outputs.logits, outputs.values, outputs.targets
    assert logits is not None
    assert values is not None
    assert targets is not None
    outputs.logits, outputs.values = None, None
    log_probs = _log_probs(logits, targets)
    passes, masks = [logits], torch.zeros_like(targets)
    del logits
    log_probs, copied, values = torch.cat([log_probs]), torch.cat(passes)[:, :-1], torch.cat([values])[:, :-1]
    masks = torch.cat([masks])
    del passes
    outputs.logits, outputs.values, outputs.kept = copied, values, (log_probs, masks)
    policy, value = _loss(outputs, log_probs, copied, values)
    return policy + value


def _log_probs(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """logprobs_from_logits."""
    scored = functional.log_softmax(logits[:, :-1, :], dim=2)
    return torch.gather(scored, 2, targets[:, 1:].unsqueeze(2)).squeeze(-1)


def _loss(
    outputs: ValuedOutput, log_probs: torch.Tensor, logits: torch.Tensor, predicted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    assert outputs.rollout is not None
    old, values, advantages, returns, mask = outputs.rollout
    clipped = torch.max(torch.min(predicted, values + _CLIP), values - _CLIP)
    losses = (predicted - returns) ** 2
    clipped_losses = (clipped - returns) ** 2
    value = 0.5 * _mean(torch.max(losses, clipped_losses), mask)
    _mean(torch.gt(clipped_losses, losses).float(), mask)
    ratio = torch.exp(log_probs - old)
    weighed = -advantages * ratio
    clipped_weighed = -advantages * torch.clamp(ratio, 1.0 - _CLIP, 1.0 + _CLIP)
    policy = _mean(torch.max(weighed, clipped_weighed), mask)
    entropy = _mean(_entropy(logits), mask)
    outputs.kept = (*(outputs.kept or ()), advantages, ratio.detach(), entropy.detach())
    return policy, _COEFFICIENT * value


def _mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """masked_mean."""
    return (values * mask).sum() / mask.sum()


def _entropy(logits: torch.Tensor) -> torch.Tensor:
    """entropy_from_logits, of which autograd keeps its part until the figure is detached."""
    probabilities = functional.softmax(logits, dim=-1)
    return torch.logsumexp(logits, dim=-1) - torch.sum(probabilities * logits, dim=-1)
