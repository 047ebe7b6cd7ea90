"""Random tokens in the place of text."""

import torch
from torch.utils.data import Dataset

from gpt.config import GPTConfig


class Characters(Dataset):
    def __init__(self, config: GPTConfig, samples: int) -> None:
        self.config, self.samples = config, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        text = torch.randint(self.config.vocab_size, (self.config.context + 1,), generator=generator)
        return text[:-1], text[1:]
