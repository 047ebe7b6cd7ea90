"""Conversations, here of random tokens."""

import torch
from torch.utils.data import Dataset

IGNORED = -100


class Conversations(Dataset):
    def __init__(self, length: int, samples: int, vocabulary: int) -> None:
        self.length, self.samples, self.vocabulary = length, samples, vocabulary

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(3, self.vocabulary, (self.length,), generator=generator)
        labels = tokens.clone()
        labels[: self.length // 4] = IGNORED
        return {"input_ids": tokens, "labels": labels}
