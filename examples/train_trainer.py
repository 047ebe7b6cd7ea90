"""Trains a causal language model with the Hugging Face Trainer; takes every option of TrainingArguments.

python examples/train_trainer.py --max_steps 20
plan --execute examples/train_trainer.py --gpus 2xcpu -- --max_steps 20
"""

from dataclasses import dataclass, field

import torch
from token_data import TINY_LLAMA, load_data, load_model
from transformers import HfArgumentParser, Trainer, TrainingArguments, set_seed

try:
    from gpu_plan import current_plan
except ImportError:  # gpu-plan is not installed: the defaults below hold
    current_plan = None


@dataclass
class ScriptArguments:
    model: str = field(default=TINY_LLAMA, metadata={"help": "hub id or folder"})
    text: str | None = field(default=None, metadata={"help": "file to train on, instead of generated tokens"})
    samples: int = field(default=2048, metadata={"help": "how many generated sequences"})
    seq_length: int = field(default=128, metadata={"help": "tokens of one sample"})


def parse_arguments() -> tuple[ScriptArguments, TrainingArguments]:
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    parser.set_defaults(
        output_dir="output",
        max_steps=20,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        warmup_steps=2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    plan = current_plan() if current_plan else None
    if plan is not None and plan.active:
        planned = {
            "output_dir": str(plan.run_folder / "checkpoints"),
            "per_device_train_batch_size": plan.micro_batch_size,
            "gradient_accumulation_steps": plan.gradient_accumulation_steps,
            "seq_length": plan.sequence_length,
            "resume_from_checkpoint": plan.resume_from and str(plan.resume_from),
        }
        parser.set_defaults(**{name: value for name, value in planned.items() if value is not None})
    return parser.parse_args_into_dataclasses()


def main() -> None:
    script, training = parse_arguments()
    set_seed(training.seed)
    model = load_model(script.model, torch.float32)
    data = load_data(
        script.text,
        model=script.model,
        vocabulary=model.config.vocab_size,
        samples=script.samples,
        length=script.seq_length,
        seed=training.seed,
    )
    trainer = Trainer(model=model, args=training, train_dataset=data)
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)


if __name__ == "__main__":
    main()
