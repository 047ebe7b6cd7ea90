"""How long the samples of the script's own loaders are, and that the longest come first.

Padding is a fact of the data: the first random batch says nothing of the batch that decides a run's peak. A few hundred
samples are collated by the script's own code, one by one, and the longest among them lead.
"""

import contextlib
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils.data import BatchSampler, IterableDataset, dataloader

from gpu_plan.planner.capture.request import SampledLengths

_SAMPLES = 256
_SECONDS = 4.0
"""Of this process's time that sampling one loader may take."""
_TOKENS = ("input_ids", "prompt_input_ids", "chosen_input_ids", "tokens")


@dataclass(slots=True)
class Lengths:
    """Of the loader whose batch came last."""

    sampled: SampledLengths | None = None
    batch_size: int | None = None
    """Samples of that batch as the loader counts them; None for a loader that does not."""


@contextlib.contextmanager
def longest_first(lengths: Lengths) -> Iterator[None]:
    """Within, loaders of tokens begin with the longest of the samples that were looked at."""
    kind = dataloader._SingleProcessDataLoaderIter
    init, following = kind.__init__, kind.__next__

    def started(self: Any, loader: Any) -> None:
        init(self, loader)
        self._plan_lengths = None
        self._plan_batch = _batch_size(loader)
        found = _sampled(loader)
        if found is not None:
            self._plan_lengths = _told(found, loader.batch_sampler.batch_size)
            self._sampler_iter = _led(found, loader.batch_sampler.batch_size, self._sampler_iter)

    def next_batch(self: Any) -> Any:
        batch = following(self)
        lengths.sampled, lengths.batch_size = self._plan_lengths, self._plan_batch
        return batch

    with mock.patch.object(kind, "__init__", started), mock.patch.object(kind, "__next__", next_batch):
        yield


def _batch_size(loader: Any) -> int | None:
    size = getattr(loader.batch_sampler, "batch_size", None) if loader._auto_collation else None
    return size if isinstance(size, int) else None


def _sampled(loader: Any) -> dict[int, int] | None:
    """Tokens by index of some samples spread over the data; None where they are all alike, or no tokens."""
    data, sampler = loader.dataset, loader.batch_sampler
    if not loader._auto_collation or not isinstance(sampler, BatchSampler) or isinstance(data, IterableDataset):
        return None
    try:
        rows = len(data)
        before = torch.get_rng_state(), random.getstate()
        started = time.process_time()
        found: dict[int, int] = {}
        for step in range(min(rows, _SAMPLES)):
            index = step * rows // min(rows, _SAMPLES)
            length = _tokens(loader.collate_fn([data[index]]))
            if length is None:
                break
            found[index] = length
            if time.process_time() - started > _SECONDS:
                break
        torch.set_rng_state(before[0])
        random.setstate(before[1])
    except Exception:  # whatever the user's code does not stand: a sample alone, an index out of turn
        return None
    return found if len(set(found.values())) > 1 else None


def _tokens(batch: Any) -> int | None:
    """Tokens of a collated batch's samples; None where it has none."""
    if not hasattr(batch, "keys"):
        return None
    named = [batch[name] for name in _TOKENS if name in batch]
    for value in named:
        if isinstance(value, torch.Tensor) and value.dim() >= 2 and not value.is_floating_point():
            return int(value.shape[1])
    return None


def _led(found: dict[int, int], size: int, rest: Iterator[Any]) -> Iterator[Any]:
    """A batch of the longest, then what would have come."""
    yield sorted(found, key=lambda index: (-found[index], index))[:size]
    yield from rest


def _told(found: dict[int, int], size: int) -> SampledLengths:
    order = list(found.values())
    random.Random(0).shuffle(order)
    batches = [max(order[start : start + size]) for start in range(0, len(order) - size + 1, size)] or [max(order)]
    return SampledLengths(
        samples=len(order),
        longest=max(order),
        median=int(statistics.median(order)),
        typical_batch=int(statistics.median(batches)),
    )
