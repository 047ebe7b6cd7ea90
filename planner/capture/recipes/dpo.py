"""Direct preference optimisation: TRL's DPOTrainer; the reference stands beside the policy, in it, or before it."""

from trl import DPOConfig, DPOTrainer

from gpu_plan.planner.capture.recipes.parts import job


def main() -> None:
    """Trains."""
    own = job(("--precompute", {"action": "store_true"}))
    arguments = own.arguments(precompute_ref_log_probs=own.given.precompute)
    DPOTrainer(
        model=own.given.model,
        args=DPOConfig(**arguments),
        train_dataset=own.data(prompt=own.prompt, chosen=f" {own.completion}", rejected=f" {own.completion}"),
        processing_class=own.tokenizer(),
        peft_config=own.adapters(),
    ).train()


if __name__ == "__main__":
    main()
