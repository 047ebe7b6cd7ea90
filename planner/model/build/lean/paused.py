"""Whether names come later just now, in this thread: not while one of them is fetched."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_state = threading.local()


@contextmanager
def opened() -> Iterator[None]:
    """Within, names come later."""
    with _set(True):
        yield


@contextmanager
def paused() -> Iterator[None]:
    """Within, everything is imported as it stands there."""
    with _set(False):
        yield


def is_open() -> bool:
    """Whether names come later."""
    return getattr(_state, "open", False)


@contextmanager
def _set(value: bool) -> Iterator[None]:
    before = is_open()
    _state.open = value
    try:
        yield
    finally:
        _state.open = before
