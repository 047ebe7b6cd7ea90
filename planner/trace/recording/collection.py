"""Recording without garbage collection, and on one thread."""

import contextlib
import gc
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """A garbage collection would move frees to arbitrary points."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """What is computed beside a step is small: threads that wait for each other on a busy machine spin for minutes of
    processor time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
