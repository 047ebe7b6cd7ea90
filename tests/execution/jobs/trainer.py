"""The Hugging Face Trainer, or TRL's SFTTrainer with --sft."""

import sys

from tiny import LENGTH, Tokens, tiny_llama, write_truth
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments


class Seen(TrainerCallback):
    """The losses that the Trainer itself logs."""

    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(logs["loss"])


seen = Seen()
model = tiny_llama()
parameters = sum(p.numel() for p in model.parameters())
if "--sft" in sys.argv:
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    sys.argv.remove("--sft")
    words = {f"w{i}": i for i in range(60)} | {"<pad>": 60, "<eos>": 61, "<unk>": 62}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    (arguments,) = HfArgumentParser(SFTConfig).parse_args_into_dataclasses()
    rows = [{"text": " ".join(f"w{(i * 7 + j) % 60}" for j in range(LENGTH - 1))} for i in range(64)]
    trainer = SFTTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=fast, callbacks=[seen]
    )
else:
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens(128), callbacks=[seen])
trainer.train()
write_truth(losses=seen.losses, parameters=parameters, steps=trainer.state.global_step)
