"""How often the kernel has killed a process for memory, here and on the machine (I/O)."""

import contextlib
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
