"""Asks hung ranks for their Python stacks (I/O)."""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path


def ask_for_stacks(pids: Iterable[int]) -> list[int]:
    """SIGUSR1 to each process that handles it; the runner registers faulthandler for it. Gives those asked."""
    asked = []
    for pid in pids:
        if handles(pid, signal.SIGUSR1):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
                asked.append(pid)
    return asked


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal: without one it would die of it."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
