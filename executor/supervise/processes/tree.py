"""Processes as the kernel knows them: who begat whom, since when, in what state (I/O).

The standard library alone where there is a /proc; psutil elsewhere.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_ENDED = ("Z", "X")
STOPPED = ("T", "t")
"""By a signal (SIGSTOP, SIGTSTP), or by a tracer."""


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the table of processes."""

    parent: int
    state: str
    """As in proc(5): `R`, `S`, `D`, `T`, `t`, `Z`, ..."""
    begun: int
    """In clock ticks since the boot: tells a process from a later one with the same number."""

    @property
    def ended(self) -> bool:
        return self.state in _ENDED


def table() -> dict[int, Process]:
    """Every process of the machine by its number, those included that have ended and wait for their parents."""
    if not (PROC / "self" / "stat").exists():
        return _by_psutil()
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            process = look(int(entry.name))
            if process is not None:
                found[int(entry.name)] = process
    return found


def look(pid: int) -> Process | None:
    """One process; None where there is none of that number (or no /proc)."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may hold spaces and brackets itself.
    fields = text.rpartition(")")[2].split()
    return Process(int(fields[1]), fields[0], int(fields[19])) if len(fields) > 19 else None


def below(roots: Iterable[int], among: Mapping[int, Process]) -> set[int]:
    """Children of `roots`, their children and so on, without the roots."""
    children: dict[int, list[int]] = {}
    for pid, process in among.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def environment(pid: int) -> list[bytes]:
    """`NAME=value` words that the process was started with; empty where they cannot be read."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return []


def names(pid: int) -> set[str]:
    """What a process may be called by: its own name, its program's file, and the script that an interpreter runs."""
    found = set()
    with contextlib.suppress(OSError):
        found.add((PROC / str(pid) / "comm").read_text(errors="replace").strip())
    with contextlib.suppress(OSError):
        words = (PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
        found |= {word.rpartition("/")[2] for word in words[:2] if word}
    return found


def _by_psutil() -> dict[int, Process]:
    import psutil

    states = {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_STOPPED: "T", psutil.STATUS_TRACING_STOP: "t"}
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            begun = int(process.create_time() * 100)
            found[process.pid] = Process(process.ppid(), states.get(process.status(), "S"), begun)
    return found
