"""What the three loops of the matrix share, so that their losses can be compared: weights, samples, optimizer."""

import argparse
from functools import partial

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, PreTrainedModel

LENGTH = 32
LEARNING_RATE = 3e-3
WARMUP, DECAYED = 2, 8
"""Optimizer steps until the full rate, and until none is left."""


class Tokens(Dataset):
    """Fixed random sequences, in order."""

    def __init__(self, vocabulary: int, samples: int = 64) -> None:
        self.ids = torch.randint(vocabulary, (samples, LENGTH), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def load_model(folder: str, dropout: float = 0.0, random_dropout: float = 0.0) -> PreTrainedModel:
    """The same weights on every rank, under every strategy: random ones would be drawn otherwise under ZeRO-3."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config.use_cache = False
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = random_dropout
    if dropout:
        drop_by_sample(model, dropout)
    return model


def drop_by_sample(model: PreTrainedModel, rate: float) -> None:
    """Dropout behind every layer's MLP whose mask is made from the sample itself, not from a rank's random stream.

    Then a sample loses the same elements whichever rank and micro batch it comes into, and losses can be compared.
    """
    seeds: list[int] = []

    def seen(module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, torch.Tensor]) -> None:
        seeds[:] = [int(row.sum()) * 31 + int(row[0]) for row in kwargs["input_ids"]]

    def dropped(layer: int, module: torch.nn.Module, args: object, output: torch.Tensor) -> torch.Tensor:
        masks = [torch.rand(output.shape[1:], generator=torch.Generator().manual_seed(seed + layer)) for seed in seeds]
        return output * (torch.stack(masks) >= rate) / (1 - rate)

    model.register_forward_pre_hook(seen, with_kwargs=True)
    for number, layer in enumerate(model.model.layers):
        layer.mlp.register_forward_hook(partial(dropped, number))


def rate_at(step: int, end: int = DECAYED) -> float:
    """Share of the learning rate after so many optimizer steps: a linear warm-up, then a linear fall."""
    return step / WARMUP if step < WARMUP else max(0.0, (end - step) / (end - WARMUP))


def add_variations(parser: argparse.ArgumentParser) -> None:
    """What a case of the matrix switches on."""
    parser.add_argument("--weight_decay", type=float, default=0.0)
    parser.add_argument("--dropout", type=float, default=0.0, help="by sample, see drop_by_sample")
    parser.add_argument("--random_dropout", type=float, default=0.0, help="torch's own, of this rank's stream")
    parser.add_argument("--schedule", action="store_true")
    parser.add_argument("--samples", type=int, default=64)
