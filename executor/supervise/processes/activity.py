"""Whether the ranks' processes do anything at all: processor time and bytes read or written (I/O)."""

import contextlib
import time
from collections.abc import Iterable

import psutil

BUSY_SHARE = 0.2
"""Of one core. Waiting in gloo takes next to none; NCCL's waiting is an asynchronous kernel, the host thread spins."""
BUSY_BYTES = 4 * 1024 * 1024
"""Per second, through files."""


class Activity:
    """Compares two looks at some processes."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._last: dict[int, tuple[float, int]] = {}

    def busy(self, pids: Iterable[int]) -> bool:
        """Whether any of `pids` or of their children, such as a DataLoader's workers, did something since the last
        call."""
        now = time.monotonic()
        seconds = max(now - self._at, 1e-3)
        found, busy = {}, False
        for process in _families(pids):
            try:
                # On a crowded machine a process may wait for its turn; one that waits for a peer sleeps.
                busy = busy or process.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
                cpu = sum(process.cpu_times()[:2])
                counters = process.io_counters()
                size = counters.read_bytes + counters.write_bytes
            except (psutil.Error, OSError, AttributeError):  # not every system counts I/O
                continue
            found[process.pid] = (cpu, size)
            before = self._last.get(process.pid)
            if before is not None:
                busy = busy or (cpu - before[0]) / seconds > BUSY_SHARE or (size - before[1]) / seconds > BUSY_BYTES
        self._at, self._last = now, found
        return busy


def _families(pids: Iterable[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found += [process, *process.children(recursive=True)]
    return found
