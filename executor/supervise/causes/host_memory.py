"""What the host says about memory: processes that the kernel killed for it, and limits of a process (I/O)."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path


def oom_kills(process: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """Processes of our own control group that the kernel killed; of the machine (/proc/vmstat) where the group does not
    tell; 0 where neither does. Only differences between two calls mean anything.

    The machine's counter also counts kills in other groups: a neighbour's container that ran out of its own memory.
    Sources: Linux, Documentation/admin-guide/cgroup-v2.rst (`memory.events`, `oom_kill`) and cgroup-v1/memory.rst
    (`memory.oom_control`, `oom_kill`); mm/oom_kill.c:__oom_kill_process counts in the group of who is killed.
    """
    for file in _counters(process, root):
        with contextlib.suppress(OSError):
            text = file.read_text()
            if "oom_kill " in text:  # Linux before 4.13 does not count
                return counter(text, "oom_kill")
    with contextlib.suppress(OSError):
        return counter(Path("/proc/vmstat").read_text(), "oom_kill")
    return 0


def _counters(process: Path, root: Path) -> Iterator[Path]:
    """Where our group's counter may lie, version 2 before version 1. In a container without a namespace of its own the
    path is the host's, and what is mounted is the group itself."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in process.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            for name in [""] if number == "0" else controllers.split(","):
                groups[name] = path.lstrip("/")
    for name, folder, file in (("", root, "memory.events"), ("memory", root / "memory", "memory.oom_control")):
        if name in groups:
            yield folder / groups[name] / file
            yield folder / file


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
