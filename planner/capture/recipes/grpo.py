"""Group relative policy optimisation: TRL's GRPOTrainer, or with ms-swift's own log-probabilities."""

from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import selective_log_softmax

from gpu_plan.planner.capture.recipes.rollouts import rollout_job


def whole_logits(
    trainer: Any,
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    logits_to_keep: int,
    batch_size: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor, None]:
    """Log-probabilities [B, K] of the last K tokens; entropies are not asked for there, and zeros here.

    ms-swift 4.5 swift/rlhf_trainers/grpo_trainer.py: GRPOTrainer._get_logps_via_local_forward.
    """
    rows, found = batch_size or len(input_ids), []
    for start in range(0, len(input_ids), rows):
        ids, mask = input_ids[start : start + rows], attention_mask[start : start + rows]
        found.append(_scored(trainer, model, ids, mask, logits_to_keep))
    scored = torch.cat(found)
    return scored, torch.zeros_like(scored), None


def _scored(trainer: Any, model: Any, ids: torch.Tensor, mask: torch.Tensor, kept: int) -> torch.Tensor:
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=kept + 1).logits
    logits = logits[:, -(kept + 1) : -1, :]
    logits.div_(trainer.temperature)
    scored: torch.Tensor = selective_log_softmax(logits, ids[:, -kept:])
    return scored


def main() -> None:
    """Trains."""
    own = rollout_job()
    if own.given.whole_logits:
        GRPOTrainer._get_per_token_logps_and_entropies = whole_logits
    GRPOTrainer(
        model=own.given.model,
        reward_funcs=own.rewards(),
        args=own.config(GRPOConfig),
        train_dataset=own.data(prompt=own.prompt),
        processing_class=own.tokenizer(),
        reward_processing_classes=own.tokenizer() if own.given.reward_model else None,
        peft_config=own.adapters(),
    ).train()


if __name__ == "__main__":
    main()
