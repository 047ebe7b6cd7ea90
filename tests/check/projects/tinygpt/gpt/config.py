"""Sizes of the model."""

from dataclasses import dataclass


@dataclass
class GPTConfig:
    vocab_size: int = 32000
    context: int = 512
    layers: int = 4
    heads: int = 8
    width: int = 512
    dropout: float = 0.0
