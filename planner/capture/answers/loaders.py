"""Data loaders as the capture needs them: in this process, without pinning, and of the planned micro batch."""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader


@contextlib.contextmanager
def loaders(micro_batch: int | None) -> Iterator[None]:
    """Within, loaders start no workers; with `micro_batch`, batches of samples have that size.

    A loader that is given a batch sampler, or no batch size at all, keeps what it was given.
    """
    original = DataLoader.__init__

    def init(self: Any, dataset: Any, batch_size: int | None = 1, *args: Any, **kwargs: Any) -> None:
        args = (*args[:3], 0, *args[4:]) if len(args) > 3 else args  # num_workers
        args = (*args[:7], 0, *args[8:]) if len(args) > 7 else args  # timeout
        kwargs.pop("persistent_workers", None)
        kwargs.pop("prefetch_factor", None)
        kwargs.pop("multiprocessing_context", None)
        kwargs.pop("timeout", None)  # of workers
        if len(args) <= 3:
            kwargs["num_workers"] = 0
        kwargs["pin_memory"] = False
        sampled = kwargs.get("batch_sampler") is not None or (len(args) > 2 and args[2] is not None)
        if micro_batch is not None and batch_size is not None and not sampled:
            batch_size = micro_batch
        original(self, dataset, batch_size, *args, **kwargs)

    DataLoader.__init__ = init
    try:
        yield
    finally:
        DataLoader.__init__ = original
