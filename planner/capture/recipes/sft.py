"""Supervised fine-tuning: TRL's SFTTrainer on a prompt and its completion."""

from trl import SFTConfig, SFTTrainer

from gpu_plan.planner.capture.recipes.parts import job


def main() -> None:
    """Trains."""
    own = job()
    SFTTrainer(
        model=own.given.model,
        args=SFTConfig(**own.arguments()),
        train_dataset=own.data(prompt=own.prompt, completion=f" {own.completion}"),
        processing_class=own.tokenizer(),
        peft_config=own.adapters(),
    ).train()


if __name__ == "__main__":
    main()
