"""Token sequences to train on: generated ones that a model can learn, or the tokens of a text file."""

import os
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

TINY_LLAMA = str(Path(__file__).resolve().parent / "tiny-llama")


class GeneratedTokens(Dataset):
    """Walks along a few permutations of the vocabulary, from each token at most once: a token tells the next one."""

    def __init__(self, *, samples: int, length: int, vocabulary: int, seed: int) -> None:
        self.length, self.vocabulary = length, vocabulary
        generator = torch.Generator().manual_seed(seed)
        walks = -(-samples // vocabulary)
        self.next_token = [torch.randperm(vocabulary, generator=generator).tolist() for _ in range(walks)]
        self.begins = torch.randperm(walks * vocabulary, generator=generator)[:samples].tolist()

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        walk, token = divmod(self.begins[index], self.vocabulary)
        tokens = [token]
        while len(tokens) < self.length:
            tokens.append(self.next_token[walk][tokens[-1]])
        ids = torch.tensor(tokens)
        return {"input_ids": ids, "labels": ids.clone()}


class TextTokens(Dataset):
    """A text file in pieces of `length` tokens; the last, shorter piece is left out."""

    def __init__(self, path: str, *, model: str, length: int) -> None:
        text = Path(path).read_text(encoding="utf-8")
        if model == TINY_LLAMA:  # has no tokenizer: its tokens are bytes
            ids = list(text.encode("utf-8"))
        else:
            ids = AutoTokenizer.from_pretrained(model)(text)["input_ids"]
        if len(ids) < length:
            raise SystemExit(f"{path} has {len(ids)} tokens: give a sequence length of at most that")
        self.pieces = torch.tensor(ids[: len(ids) // length * length]).view(-1, length)

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.pieces[index], "labels": self.pieces[index].clone()}


def load_data(text: str | None, *, model: str, vocabulary: int, samples: int, length: int, seed: int) -> Dataset:
    """The text file's tokens, or `samples` generated sequences; each of `length` tokens."""
    if text:
        return TextTokens(text, model=model, length=length)
    return GeneratedTokens(samples=samples, length=length, vocabulary=vocabulary, seed=seed)


def load_model(name: str, dtype: torch.dtype) -> PreTrainedModel:
    """A hub model or a folder; a folder that holds no weights gets random ones."""
    if os.path.isdir(name) and not any(Path(name).glob("*.safetensors")):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name), dtype=dtype)
    return AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
