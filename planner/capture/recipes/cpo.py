"""Contrastive preference optimisation, without a reference: TRL's experimental CPOTrainer."""

from typing import Any

from trl.experimental.cpo import CPOConfig, CPOTrainer

from gpu_plan.planner.capture.recipes.parts import job


def train(**loss: Any) -> None:
    """Trains; `loss`: what is said of it, else CPOConfig's own."""
    own = job()
    CPOTrainer(
        model=own.given.model,
        args=CPOConfig(**own.arguments(**loss)),
        train_dataset=own.data(prompt=own.prompt, chosen=f" {own.completion}", rejected=f" {own.completion}"),
        processing_class=own.tokenizer(),
        peft_config=own.adapters(),
    ).train()


if __name__ == "__main__":
    train()
