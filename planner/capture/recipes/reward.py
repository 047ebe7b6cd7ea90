"""A reward model: TRL's RewardTrainer on pairs, with a head of one number."""

from trl import RewardConfig, RewardTrainer

from gpu_plan.planner.capture.recipes.parts import job


def main() -> None:
    """Trains."""
    own = job()
    text = f"{own.prompt} {own.completion}"
    RewardTrainer(
        model=own.given.model,
        args=RewardConfig(**own.arguments()),
        train_dataset=own.data(chosen=text, rejected=text),
        processing_class=own.tokenizer(),
        peft_config=own.adapters("SEQ_CLS"),
    ).train()


if __name__ == "__main__":
    main()
