"""The Hugging Face Trainer."""

from dataclasses import dataclass, field

from tiny import LEARNING_RATE, Tokens, load_model
from torch.utils.data import SequentialSampler
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ScriptArguments:
    model: str = field(metadata={"help": "folder"})
    dropout: float = 0.0
    samples: int = 64


class InOrder(Trainer):
    """Takes samples in their order."""

    def _get_train_sampler(self, train_dataset=None):
        return SequentialSampler(self.train_dataset)


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    parser.set_defaults(
        max_steps=4,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        weight_decay=0.0,
        adam_beta2=0.999,
        optim="adamw_torch",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        output_dir="output",
    )
    script, training = parser.parse_args_into_dataclasses()
    model = load_model(script.model, script.dropout)
    data = Tokens(model.config.vocab_size, script.samples)
    InOrder(model=model, args=training, train_dataset=data).train()


if __name__ == "__main__":
    main()
