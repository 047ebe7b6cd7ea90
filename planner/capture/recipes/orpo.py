"""Odds ratio preference optimisation, without a reference: TRL's experimental ORPOTrainer."""

from trl.experimental.orpo import ORPOConfig, ORPOTrainer

from gpu_plan.planner.capture.recipes.parts import job


def main() -> None:
    """Trains."""
    own = job()
    ORPOTrainer(
        model=own.given.model,
        args=ORPOConfig(**own.arguments()),
        train_dataset=own.data(prompt=own.prompt, chosen=f" {own.completion}", rejected=f" {own.completion}"),
        processing_class=own.tokenizer(),
        peft_config=own.adapters(),
    ).train()


if __name__ == "__main__":
    main()
