"""Asks hung ranks for their Python stacks, and reads where each stands (I/O)."""

import contextlib
import os
import re
import signal
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor import names
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.own_python import ROOT
from gpu_plan.planner.plan.codec import MAX_BYTES

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>\S+)$', re.MULTILINE)
_MAIN = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):\n((?:  .*\n?)+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a hung rank's main thread stands."""

    rank: int
    where: str
    """The innermost line of the user's own files: `train.py:62 in load`."""
    waits: bool
    """Whether it is inside torch at that line, as a rank that waits for its peers is."""


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


def places(logs: Path) -> tuple[Place, ...]:
    """Where the ranks that answered stand, from `rank-N.stacks`, in rank order."""
    found = []
    for path in logs.glob("rank-*.stacks"):
        rank = names.rank_of(path.stem)
        with contextlib.suppress(OSError):
            text = read_bytes(path, MAX_BYTES).decode(errors="replace")
            place = None if rank is None else parse_place(text, rank)
            if place is not None:
                found.append(place)
    return tuple(sorted(found, key=lambda place: place.rank))


def parse_place(text: str, rank: int) -> Place | None:
    """The main thread's place in what faulthandler wrote last: the thread that ran the module `__main__`."""
    for block in reversed(_MAIN.findall(text)):
        frames = _FRAME.findall(block)
        if not any(name == "_run_module_as_main" for _, _, name in frames):
            continue
        for index, (file, line, name) in enumerate(frames):
            if _is_users(file):
                inner = any("/torch/" in inner_file for inner_file, _, _ in frames[:index])
                return Place(rank=rank, where=f"{Path(file).name}:{line} in {name}", waits=inner)
    return None


def _is_users(file: str) -> bool:
    ours, library = f"{ROOT}/gpu_plan/", sysconfig.get_paths()["stdlib"]
    return not file.startswith(("<", ours, library)) and "site-packages" not in file
