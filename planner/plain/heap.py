"""Memory that is free goes back to the system (I/O).

glibc's malloc returns what lies at the end of its heap alone: behind a search, whose arrays came and went, a quarter of
a process is holes.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

_MATTERS = 16 * 1024**2
"""Bytes that a process has grown by since it last gave any back: less is not looked for."""
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_left: dict[int, int] = {}
"""By process, the bytes that it held when it had given back what it could."""


def give_back() -> None:
    """What nothing is in; where malloc has no such call, nothing. A few milliseconds for some hundred megabytes."""
    trim = _trim()
    if trim is not None and _held() - _left.get(os.getpid(), 0) >= _MATTERS:
        trim(0)
        _left[os.getpid()] = _held()


def _held() -> int:
    """Bytes of this process in memory (proc(5): statm); 0 where that is not told."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


@cache
def _trim() -> Callable[[int], int] | None:
    """malloc_trim (malloc.h) of glibc: musl and macOS have none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
