"""What a model is given in one micro batch: its tensors by name, samples, tokens."""

from collections.abc import Mapping
from typing import Any

import torch


def named_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    found: list[tuple[str, torch.Tensor]] = []

    def walk(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        elif isinstance(value, Mapping):  # a tokenizer's BatchEncoding is one, and no dict
            for key, item in value.items():
                walk(str(key) if not name else f"{name}.{key}", item)
        elif isinstance(value, (tuple, list)):
            for index, item in enumerate(value):
                walk(f"{name}.{index}" if name else f"input {index}", item)

    for index, value in enumerate(args):
        walk(f"input {index}", value)
    walk("", kwargs)
    return found


_TOKENS = ("input_ids", "decoder_input_ids", "tokens", "inputs_embeds")


def micro_batch_of(inputs: dict[str, torch.Tensor]) -> int:
    """First dimension of the first tensor that has one; vectors of numbers alone are one sample."""
    shaped = [tensor for tensor in inputs.values() if tensor.dim() > 0]
    if not shaped or (shaped[0].is_floating_point() and all(tensor.dim() == 1 for tensor in shaped)):
        return 1
    return int(shaped[0].shape[0])


_PAIR = 2
"""Answers of one prompt that are held against each other."""


def samples_of(rows: int, batch_size: int | None, listed: set[int], completions: int = 0) -> int:
    """Samples of the micro batch; `completions`: how many the script has generated at once.

    A loader's batch of 8 pairs is 16 rows; where a loop cuts its batch, what it computes at once are samples. What is
    given as texts or as one tensor for each sample is counted by its list: a tensor of it is one sample's. A group of
    completions of one prompt, which are trained on at once, are as many samples.
    """
    if batch_size == 1 and rows == completions and rows > _PAIR:
        return rows
    if batch_size and (batch_size in listed or (rows > batch_size and rows % batch_size == 0)):
        return batch_size
    return rows


def lengths_listed(given: Any) -> set[int]:
    """Lengths of the lists of texts, of tensors or of lists in what a model is given."""
    if isinstance(given, Mapping):
        return set().union(*map(lengths_listed, given.values()))
    if not isinstance(given, list | tuple):
        return set()
    parts = (str, torch.Tensor, list)
    own = {len(given)} if isinstance(given, list) and given and all(isinstance(one, parts) for one in given) else set()
    return own.union(*map(lengths_listed, given))


def sequence_of(inputs: dict[str, torch.Tensor]) -> int | None:
    """Tokens per sample, where the inputs are tokens."""
    for name, tensor in inputs.items():
        if name in _TOKENS and tensor.dim() >= 2:
            return int(tensor.shape[1])
    first = next(iter(inputs.values()), None)
    if first is not None and first.dim() == 2 and first.dtype in (torch.int64, torch.int32):
        return int(first.shape[1])
    return None


def tokens_of(inputs: dict[str, torch.Tensor]) -> int:
    """Tokens of the micro batch; samples where there are no tokens."""
    return micro_batch_of(inputs) * (sequence_of(inputs) or 1)
