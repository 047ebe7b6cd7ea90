"""What the three loops of the matrix share, so that their losses can be compared: weights, samples, optimizer."""

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, PreTrainedModel

LENGTH = 32
LEARNING_RATE = 1e-3
CLIP = 1.0


class Tokens(Dataset):
    """Fixed random sequences, in order."""

    def __init__(self, vocabulary: int, samples: int = 64) -> None:
        self.ids = torch.randint(vocabulary, (samples, LENGTH), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def load_model(folder: str) -> PreTrainedModel:
    """The same weights on every rank, under every strategy: random ones would be drawn otherwise under ZeRO-3."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config.use_cache = False
    return model
