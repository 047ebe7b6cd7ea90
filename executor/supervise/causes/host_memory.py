"""What the host says about memory: processes that the kernel killed for it, and limits of a process (I/O)."""

import contextlib
import resource
from pathlib import Path


def oom_kills(process: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """The counter of our cgroup (v2: memory.events), else the machine's (/proc/vmstat); 0 where neither tells.

    Only differences between two calls mean anything.
    """
    with contextlib.suppress(OSError):
        for line in process.read_text().splitlines():
            number, _, path = line.split(":", 2)
            events = root / path.lstrip("/") / "memory.events"
            if number == "0" and events.is_file():
                return counter(events.read_text(), "oom_kill")
    with contextlib.suppress(OSError):
        return counter(Path("/proc/vmstat").read_text(), "oom_kill")
    return 0


def counter(text: str, name: str) -> int:
    """A value in lines of `name value`; 0 where it is missing."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return 0


def data_limit(pid: int) -> int | None:
    """The smaller of a process's limits on its data and its address space, in bytes; None without any."""
    limits = []
    for number in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # prlimit is Linux's
            soft, _ = resource.prlimit(pid, number)
            if soft != resource.RLIM_INFINITY:
                limits.append(soft)
    return min(limits, default=None)
