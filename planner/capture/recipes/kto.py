"""Kahneman-Tversky optimisation: TRL's KTOTrainer; half of the samples are wanted."""

from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from gpu_plan.planner.capture.recipes.parts import job


def main() -> None:
    """Trains."""
    own = job(("--precompute", {"action": "store_true"}))
    rows = max(own.rows, 2)
    data = {
        "prompt": [own.prompt] * rows,
        "completion": [f" {own.completion}"] * rows,
        "label": [number % 2 == 0 for number in range(rows)],
    }
    KTOTrainer(
        model=own.given.model,
        args=KTOConfig(**own.arguments(precompute_ref_log_probs=own.given.precompute)),
        train_dataset=Dataset.from_dict(data),
        processing_class=own.tokenizer(),
        peft_config=own.adapters(),
    ).train()


if __name__ == "__main__":
    main()
