"""Collectives that return only when gloo's threads have let go of their tensors.

A worker thread can hold the last reference to a tensor for a moment after the collective is done. Whether the
tensor then dies in that thread, unseen by the profiler, or in ours is a race of gloo's own; NCCL has no such
threads. Nothing else changes: no tensor is made, kept or dropped here.
"""

import contextlib
import sys
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
        before = _references(tensors)
        work = collective(*args, **kwargs)
        deadline = time.monotonic() + _PATIENCE
        while any(now > then for now, then in zip(_references(tensors), before, strict=True)):
            if time.monotonic() > deadline:
                raise RuntimeError("gloo still holds a tensor of a collective that is done")
            time.sleep(0)
        return _Done() if goes_on else work

    return run


def _references(tensors: list[torch.Tensor]) -> list[int]:
    """Owners of each tensor, of its storage and of its Python object; more than before are somebody else's.

    A thread that lets go of a tensor counts down its owners first and drops the Python object behind it, when the
    interpreter's lock comes to it (c10/util/intrusive_ptr.h: reset_not_null_): an object that we let go of meanwhile
    dies in that thread, and what it views with it.
    """
    counts: list[int] = []
    for tensor in tensors:
        storage = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)  # type: ignore[attr-defined]
        counts += (tensor._use_count(), storage, sys.getrefcount(tensor))
    return counts
