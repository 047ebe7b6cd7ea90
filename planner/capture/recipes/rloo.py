"""REINFORCE with a leave-one-out baseline: TRL's RLOOTrainer."""

from trl import RLOOConfig, RLOOTrainer

from gpu_plan.planner.capture.recipes.rollouts import rollout_job


def main() -> None:
    """Trains."""
    own = rollout_job()
    RLOOTrainer(
        model=own.given.model,
        reward_funcs=own.rewards(),
        args=own.config(RLOOConfig),
        train_dataset=own.data(prompt=own.prompt),
        processing_class=own.tokenizer(),
        reward_processing_classes=own.tokenizer() if own.given.reward_model else None,
        peft_config=own.adapters(),
    ).train()


if __name__ == "__main__":
    main()
