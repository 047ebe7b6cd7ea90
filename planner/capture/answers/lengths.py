"""How long the samples of the script's own loaders are, and that the longest come first.

Padding is a fact of the data: the first random batch says nothing of the batch that decides a run's peak. A few hundred
samples are collated by the script's own code, one by one, and the longest among them lead.
"""

import contextlib
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils.data import BatchSampler, IterableDataset, dataloader

from gpu_plan.planner.capture.request import SampledLengths

_SAMPLES = 256
_BATCHES = 64
"""Of a sampler of the user's own that are looked at."""
_SECONDS = 4.0
"""Of this process's time that sampling one loader may take."""
_MOST_AXES = 3
"""Of a batch of sequences: samples, tokens or frames, features. Pictures have four."""
_ALIKE = 32
"""Samples of one width after which the rest is taken to be as wide."""
_TOKENS = ("input_ids", "prompt_input_ids", "chosen_input_ids", "tokens")


@dataclass(slots=True)
class Lengths:
    """Of the loader whose batch came last."""

    sampled: SampledLengths | None = None
    batch_size: int | None = None
    """Samples of that batch as the loader counts them; None for a loader that does not."""
    batches: int = 0
    """How many have come."""


@contextlib.contextmanager
def longest_first(lengths: Lengths) -> Iterator[None]:
    """Within, loaders of tokens begin with the longest of the samples that were looked at."""
    kind = dataloader._SingleProcessDataLoaderIter
    init, following = kind.__init__, kind.__next__

    def started(self: Any, loader: Any) -> None:
        init(self, loader)
        self._plan_lengths = None
        self._plan_batch = size = _batch_size(loader)
        if _of_the_users(loader.batch_sampler):
            drawn = _drawn(loader)
            if drawn is not None:
                first, self._plan_lengths = drawn
                self._plan_batch = len(first)
                self._sampler_iter = itertools.chain([first], self._sampler_iter)
            return
        if size is None:
            return
        fetcher = self._dataset_fetcher
        if isinstance(loader.dataset, IterableDataset):
            rows = _looked_at(loader, fetcher)
            fetcher.dataset_iter, found = _led_rows(rows, size, loader.collate_fn, fetcher.dataset_iter)
        else:
            found = _sampled(loader)
            if found:
                first = _lead(found, size, lambda chosen: loader.collate_fn([loader.dataset[one] for one in chosen]))
                self._sampler_iter = itertools.chain([first], self._sampler_iter)
        self._plan_lengths = _told(found, size) if found else None

    def next_batch(self: Any) -> Any:
        batch = following(self)
        lengths.sampled, lengths.batch_size = self._plan_lengths, self._plan_batch
        lengths.batches += 1
        return batch

    with mock.patch.object(kind, "__init__", started), mock.patch.object(kind, "__next__", next_batch):
        yield


def _batch_size(loader: Any) -> int | None:
    size = getattr(loader.batch_sampler, "batch_size", None) if loader._auto_collation else None
    return size if isinstance(size, int) else None


def _of_the_users(sampler: Any) -> bool:
    """Whether batches are put together by code of the user's own: buckets of like lengths, as many tokens as fit."""
    kind = type(sampler)
    own = not isinstance(sampler, BatchSampler) or kind.__iter__ is not BatchSampler.__iter__
    return sampler is not None and own and not kind.__module__.startswith(("torch.", "accelerate.", "transformers."))


def _drawn(loader: Any) -> tuple[list[int], SampledLengths] | None:
    """Of the batches that such a sampler gives the one that pads to most tokens, and what was seen of all of them.

    None where the samples are all alike or hold no tokens, and for indices that are no list.
    """
    before = torch.get_rng_state(), random.getstate()
    try:
        batches = [list(batch) for batch in itertools.islice(iter(loader.batch_sampler), _BATCHES)]
        indices = list(dict.fromkeys(index for batch in batches for index in batch))[:_SAMPLES]
        found = _measured(((index, loader.dataset[index]) for index in indices), loader)
    except Exception:  # whatever the user's code does not stand: a second pass, a sample alone
        return None
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
    whole = [batch for batch in batches if found and batch and all(index in found for index in batch)]
    if not found or not whole:
        return None
    widths = [max(found[index] for index in batch) for batch in whole]
    most = max(range(len(whole)), key=lambda place: (len(whole[place]) * widths[place], widths[place]))
    told = SampledLengths(
        samples=len(found),
        longest=widths[most],
        median=int(statistics.median(found.values())),
        typical_batch=int(statistics.median(widths)),
    )
    return whole[most], told


def _sampled(loader: Any) -> dict[int, int] | None:
    """Tokens by index of some samples spread over the data; None where they are all alike, or no tokens."""
    data = loader.dataset
    if not isinstance(loader.batch_sampler, BatchSampler):
        return None
    try:
        rows = len(data)
        some = min(rows, _SAMPLES)
        return _measured(((index, data[index]) for index in (step * rows // some for step in range(some))), loader)
    except Exception:  # whatever the user's code does not stand: a length that it has not
        return None


def _looked_at(loader: Any, fetcher: Any) -> tuple[list[Any], dict[int, int] | None]:
    """The first samples of an iterable data set, taken from what its loader reads, and their tokens by their place."""
    taken: list[Any] = []

    def rows() -> Iterator[tuple[int, Any]]:
        while len(taken) < _SAMPLES:
            try:
                taken.append(next(fetcher.dataset_iter))
            except StopIteration:
                return
            except Exception as error:  # the user's own: raised where its sample would have come
                fetcher.dataset_iter = _Raising(error)
                return
            yield len(taken) - 1, taken[-1]

    return taken, _measured(rows(), loader)


class _Raising:
    """An iterator that ends in a user's exception."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __iter__(self) -> "_Raising":
        return self

    def __next__(self) -> Any:
        raise self._error


def _led_rows(
    looked_at: tuple[list[Any], dict[int, int] | None], size: int, collate: Callable[[list[Any]], Any], rest: Any
) -> tuple[Iterator[Any], dict[int, int] | None]:
    """The same samples with a batch of the longest in front, and their tokens; as they came where all are alike."""
    taken, found = looked_at
    first = _lead(found, size, lambda chosen: collate([taken[one] for one in chosen])) if found else []
    order = [*first, *(place for place in range(len(taken)) if place not in first)]
    return itertools.chain((taken[place] for place in order), rest), found


def _measured(rows: Iterator[tuple[int, Any]], loader: Any) -> dict[int, int] | None:
    """Tokens of each sample as the loader's own code collates it alone; None where they are all alike, or no tokens."""
    before = torch.get_rng_state(), random.getstate()
    started = time.process_time()
    found: dict[int, int] = {}
    try:
        for index, row in rows:
            batch = loader.collate_fn([row])
            length = _tokens(batch)
            if length is None:
                break
            found[index] = length
            if len(found) == _ALIKE and len(set(found.values())) == 1 and not _says_tokens(batch):
                break
            if time.process_time() - started > _SECONDS:
                break
    except Exception:  # whatever the user's code does not stand: a sample alone, an index out of turn
        return None
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
    return found if len(set(found.values())) > 1 else None


def _named(batch: Any) -> bool:
    return hasattr(batch, "keys") and hasattr(batch, "values")


def _says_tokens(batch: Any) -> bool:
    return _named(batch) and any(name in batch for name in _TOKENS)


def _tokens(batch: Any) -> int | None:
    """Tokens of a collated batch's samples; None where it has none.

    Where no name says which they are: the width of the first tensor of ids, else of the first of frames.
    """
    if _named(batch):
        named = [batch[name] for name in _TOKENS if name in batch]
        values = named or list(batch.values())
    else:
        values = list(batch) if isinstance(batch, tuple | list) else [batch]
    sequences = [one for one in values if isinstance(one, torch.Tensor) and 2 <= one.dim() <= _MOST_AXES]
    ids = [one for one in sequences if not one.is_floating_point()]
    first = next(iter(ids or sequences), None)
    if first is None:
        return None
    # Collated alone, a sample has one row; where pad_sequence puts time first, one column.
    return int(first.shape[0] if first.shape[1] == 1 and not _named(batch) else first.shape[1])


def _lead(found: dict[int, int], size: int, collated: Callable[[list[int]], Any]) -> list[int]:
    """A batch of the longest. Where samples are padded to the longest of their batch, one of it is shorter: a batch
    without padding has no mask (transformers masking_utils.py: _ignore_causal_mask_sdpa), and most that come have one.
    """
    order = sorted(found, key=lambda index: (-found[index], index))
    chosen = order[:size]
    shorter = next((index for index in order if found[index] < found[order[0]]), None)
    if size == 1 or shorter is None or shorter in chosen:
        return chosen
    mixed = [*chosen[:-1], shorter]
    try:
        padded = _tokens(collated(mixed)) == found[order[0]]
    except Exception:  # whatever the user's code does not stand: samples out of turn
        return chosen
    return mixed if padded else chosen


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
