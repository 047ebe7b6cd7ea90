"""Collectives that return only when gloo's threads have let go of their tensors.

A worker thread can hold the last reference to a tensor for a moment after the collective is done. Whether the
tensor then dies in that thread, unseen by the profiler, or in ours is a race of gloo's own; NCCL has no such
threads. Nothing else changes: no tensor is made, kept or dropped here.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

_NAMES = ("all_gather", "all_gather_single", "reduce_scatter_single", "all_reduce")
_DEEPSPEED_NAMES = ("all_gather_into_tensor", "reduce_scatter_tensor", "broadcast")
"""Those that DeepSpeed issues without waiting; here they are done when they return, and their handle holds nothing."""
_PATIENCE = 900.0


@contextlib.contextmanager
def settled_collectives(*more: str) -> Iterator[None]:
    """Replaces FSDP's and DeepSpeed's collectives, and those named, by ones that wait for gloo's threads."""
    originals = {name: getattr(dist, name) for name in (*_NAMES, *_DEEPSPEED_NAMES, *more)}
    for name, original in originals.items():
        setattr(dist, name, _settled(original, at_once=name in _DEEPSPEED_NAMES))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


class _Done:
    """Handle of a collective that is over."""

    def wait(self) -> bool:
        return True


def _settled(collective: Callable[..., Any], *, at_once: bool) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        goes_on = at_once and kwargs.pop("async_op", False)
        given = [item for value in (*args, *kwargs.values()) for item in (value if type(value) is list else [value])]
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        before = [_references(tensor) for tensor in tensors]
        work = collective(*args, **kwargs)
        deadline = time.monotonic() + _PATIENCE
        while any(_more(_references(tensor), then) for tensor, then in zip(tensors, before, strict=True)):
            if time.monotonic() > deadline:
                raise RuntimeError("gloo still holds a tensor of a collective that is done")
            time.sleep(0)
        return _Done() if goes_on else work

    return run


def _more(now: tuple[int, int], before: tuple[int, int]) -> bool:
    """Whether somebody has come to hold it; another collective's thread may have let go meanwhile."""
    return now[0] > before[0] or now[1] > before[1]


def _references(tensor: torch.Tensor) -> tuple[int, int]:
    """Owners of the tensor and of its storage."""
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)  # type: ignore[attr-defined]
