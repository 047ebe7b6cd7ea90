"""Processes below a process, and what they take (I/O)."""

import os
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc/PID/stat (man 5 proc)."""

    parent: int
    processor_seconds: float
    """Its own, and those of its children that have ended."""
    resident_bytes: int


def descendants(root: int) -> dict[int, Process]:
    """All processes below `root`, itself not among them; zombies too."""
    everything = _processes()
    children: dict[int, list[int]] = {}
    for number, process in everything.items():
        children.setdefault(process.parent, []).append(number)
    found: dict[int, Process] = {}
    waiting = list(children.get(root, ()))
    while waiting:
        number = waiting.pop()
        if number not in found:
            found[number] = everything[number]
            waiting += children.get(number, ())
    return found


def proportional_bytes(process: int) -> int:
    """Bytes of a process with shared pages divided among those that share them; 0 once it has gone."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return 0


def _processes() -> dict[int, Process]:
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
            ticks = sum(map(int, words[11:15]))
            found[int(entry.name)] = Process(int(words[1]), ticks / _TICKS, int(words[21]) * _PAGE)
        except (OSError, IndexError, ValueError):
            continue
    return found
