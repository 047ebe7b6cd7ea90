"""What the jobs share: a tiny random Llama, its data, and a note of what the loop itself knows to have happened."""

import json
import os
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY, LENGTH = 64, 16


def tiny_llama(layers: int = 2) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


class Tokens(torch.utils.data.Dataset):
    """Sequences of one length, the same in every process."""

    def __init__(self, samples: int, length: int = LENGTH) -> None:
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randint(VOCABULARY, (samples, length), generator=generator)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.rows[index], "labels": self.rows[index].clone()}


def write_truth(**values: object) -> None:
    """`truth-RANK.json` in the working directory, which is the run folder."""
    Path(f"truth-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(values))
