"""Gives the script's training DataLoader the planned micro batch, where it has no option for it (opt-in)."""

import sys
from typing import Any

from gpu_plan.executor.runner.recorder import Recorder


class Rebatch:
    """Rebuilds the loaders that Accelerate is about to prepare.

    A loader is for training if it is the first one, or if its samples are shuffled. Loaders with a batch sampler of
    their own, or without batches, are left alone, which is noted.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._first = True

    def rebuilt(self, loader: Any) -> Any:
        """A loader over the same data with the planned batch size, or the same one."""
        size = self._recorder.options.micro_batch_size
        if not self._recorder.options.rebatch or size is None:
            return loader
        return self._recorder.guard("the DataLoader's batch size", self._rebuilt, loader, size) or loader

    def _rebuilt(self, loader: Any, size: int) -> Any:
        data = sys.modules["torch.utils.data"]
        if getattr(loader, "_is_accelerate_prepared", False) or not isinstance(loader, data.DataLoader):
            return loader
        first, self._first = self._first, False
        iterable = isinstance(loader.dataset, data.IterableDataset)
        shuffled = not iterable and not isinstance(loader.sampler, data.SequentialSampler)
        if not (first or shuffled) or loader.batch_size == size:
            return loader
        if loader.batch_size is None or (not iterable and type(loader.batch_sampler) is not data.BatchSampler):
            self._recorder.note("the planned micro batch was not applied: the DataLoader has its own batch sampler")
            return loader
        made = type(loader)(loader.dataset, batch_size=size, **self._kept(loader, iterable))
        self._recorder.note(f"the DataLoader's batch size was changed from {loader.batch_size} to {size}, as planned")
        return made

    @staticmethod
    def _kept(loader: Any, iterable: bool) -> dict[str, Any]:
        """The other arguments of the DataLoader (torch/utils/data/dataloader.py)."""
        names = (
            "num_workers",
            "collate_fn",
            "pin_memory",
            "drop_last",
            "timeout",
            "worker_init_fn",
            "multiprocessing_context",
            "generator",
            "prefetch_factor",
            "persistent_workers",
            "pin_memory_device",
            "in_order",
        )
        kept = {name: getattr(loader, name) for name in names if hasattr(loader, name)}
        if not iterable:
            kept["sampler"] = loader.sampler
        if not kept.get("num_workers"):
            kept.pop("prefetch_factor", None)
            kept.pop("multiprocessing_context", None)
        return kept
