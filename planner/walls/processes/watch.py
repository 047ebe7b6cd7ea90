"""Limits on what runs behind walls. They count progress, not the clock (I/O)."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpu_plan.planner.walls.processes.tree import Process, descendants, proportional_bytes

POLL_SECONDS = 0.05
_SCRATCH_SECONDS, _TOLD_SECONDS = 1.0, 10.0
_STILL_SECONDS, _STILL_SHARE = 60.0, 1 / 3
_LEAST_PROGRESS = 0.05
"""Seconds of processor time: less than that is what a process takes that only waits."""
_END_SECONDS = 60.0
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may be taken until an aim is reached."""

    name: str
    """Whose limits: a script, a factory."""
    aim: str
    """In words, such as `an optimizer step`."""
    seconds: float
    """Of processor time; without any for a third of that, but for a minute at least, it stands still."""
    resident_bytes: int
    written_bytes: int
    processes: int


class Watch:
    """Looks at the processes below one."""

    def __init__(self, limits: Limits, warden: int, scratch: Path, note: Callable[[str], None]) -> None:
        self._limits, self._warden, self._scratch, self._note = limits, warden, scratch, note
        self._used = self._before = 0.0
        self.begin()

    def begin(self) -> None:
        """An aim is reached, and another one begins."""
        self._before += self._used
        self._started = self._moved = self._told = self._measured = time.monotonic()
        self._used = self._used_when_moved = 0.0

    def broken(self) -> str | None:
        """Which limit has been passed, if any, in words that follow the name."""
        found, now = descendants(self._warden), time.monotonic()
        passed = _too_large(found, self._limits) or self._too_long(found, now)
        if passed is None and now - self._measured > _SCRATCH_SECONDS:
            self._measured = now
            passed = _too_much(self._scratch, self._limits)
        return passed

    def _too_long(self, found: dict[int, Process], now: float) -> str | None:
        limits = self._limits
        self._used = max(self._used, sum(one.processor_seconds for one in found.values()) - self._before)
        if self._used - self._used_when_moved >= _LEAST_PROGRESS:
            self._moved, self._used_when_moved = now, self._used
        if now - self._told >= _TOLD_SECONDS:
            self._told = now
            self._note(
                f"tracing {limits.name}: not at {limits.aim} after {now - self._started:.0f} s,"
                f" {self._used:.0f} s of them computing (the limit is {limits.seconds:.0f})"
            )
        if self._used > limits.seconds:
            return (
                f"has not reached {limits.aim} after {limits.seconds:.0f} s of processor time:"
                " --script-seconds allows it more"
            )
        still = max(_STILL_SECONDS, limits.seconds * _STILL_SHARE)
        if now - self._moved > still:
            return (
                f"has not reached {limits.aim}, and has done nothing for {still:.0f} s:"
                " it waits for what does not come behind walls (--script-seconds waits longer)"
            )
        return None


class Reader(threading.Thread):
    """Reads a stream to its end: keeps the last `kept` bytes of it, or the first `most`."""

    def __init__(self, stream: IO[bytes], *, kept: int = 0, most: int = 0) -> None:
        super().__init__(daemon=True)
        self._stream, self._kept, self._most = stream, kept, most
        self.content = b""
        self.start()

    def run(self) -> None:
        pieces, length = [], 0
        with self._stream:
            while piece := self._stream.read1(_PIECE):  # type: ignore[attr-defined]
                if self._kept:
                    self.content = (self.content + piece)[-self._kept :]
                elif length < self._most:
                    pieces.append(piece)
                    length += len(piece)
        if not self._kept:
            self.content = b"".join(pieces)

    def join(self, timeout: float | None = _END_SECONDS) -> None:
        super().join(timeout)


def end(warden: "subprocess.Popen[bytes]") -> None:
    """Nothing that was started behind the walls outlives this: the warden ends all of it when it is told to end."""
    if warden.poll() is None:
        warden.terminate()
        try:
            warden.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            warden.kill()
    warden.wait()


def _too_large(found: dict[int, Process], limits: Limits) -> str | None:
    if len(found) > limits.processes:
        return f"starts more than {limits.processes} processes before {limits.aim}"
    if sum(one.resident_bytes for one in found.values()) <= limits.resident_bytes:
        return None
    # Forked processes share pages: each counts its part only where the plain sum is too much.
    if sum(map(proportional_bytes, found)) <= limits.resident_bytes:
        return None
    return f"takes more than {limits.resident_bytes / 2**30:.0f} GiB of real memory before {limits.aim}"


def _too_much(scratch: Path, limits: Limits) -> str | None:
    total = 0
    for folder, _, names in os.walk(scratch):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    if total <= limits.written_bytes:
        return None
    return f"writes more than {limits.written_bytes / 2**30:.0f} GiB before {limits.aim}"
