"""What the three loops of the matrix share, so that their losses can be compared: weights, samples, optimizer."""

import argparse
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

CONFIG = Path(__file__).parents[3] / "examples" / "tiny-llama"
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


def make_model() -> PreTrainedModel:
    """The same random weights on every rank."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(CONFIG), dtype=torch.float32)
    model.config.use_cache = False
    return model


def arguments() -> argparse.Namespace:
    """As a user's script has them; the plan fills in the batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()
