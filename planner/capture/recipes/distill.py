"""Distillation of given completions: TRL's experimental GKDTrainer with a frozen teacher, and no generation."""

from trl.experimental.gkd import GKDConfig, GKDTrainer

from gpu_plan.planner.capture.recipes.parts import job


def main() -> None:
    """Trains."""
    own = job(("--teacher", {"required": True}))
    messages = [{"role": "user", "content": own.prompt}, {"role": "assistant", "content": own.completion}]
    GKDTrainer(
        model=own.given.model,
        teacher_model=own.given.teacher,
        args=GKDConfig(**own.arguments(lmbda=0.0)),
        train_dataset=own.data(messages=messages),
        processing_class=own.tokenizer(),
        peft_config=own.adapters(),
    ).train()


if __name__ == "__main__":
    main()
