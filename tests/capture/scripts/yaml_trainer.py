"""A Trainer with a loss of its own, configured by a YAML file through HfArgumentParser."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    width: int = 32
    layers: int = 2
    labels: int = 3
    length: int = 24
    frozen_embeddings: bool = False


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        weight = torch.tensor([1.0, 2.0, 0.5], device=outputs.logits.device)
        loss = F.cross_entropy(outputs.logits, labels, weight=weight)
        return (loss, outputs) if return_outputs else loss


def main() -> None:
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    config_file = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).with_suffix(".yaml"))
    model_args, training_args = parser.parse_yaml_file(config_file)
    config = BertConfig(
        vocab_size=200, hidden_size=model_args.width, num_hidden_layers=model_args.layers, num_attention_heads=4,
        intermediate_size=2 * model_args.width, num_labels=model_args.labels,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    if model_args.frozen_embeddings:
        model.bert.embeddings.requires_grad_(False)
    rows = [
        {
            "input_ids": [(i + j) % 200 for j in range(model_args.length)],
            "attention_mask": [1] * model_args.length,
            "labels": i % model_args.labels,
        }
        for i in range(64)
    ]
    WeightedTrainer(model=model, args=training_args, train_dataset=rows).train()


if __name__ == "__main__":
    main()
