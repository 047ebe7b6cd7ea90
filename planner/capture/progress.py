"""Waits for the capturing child, and ends it when it passes a limit. Limits count progress, not the clock (I/O)."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from gpu_plan.planner.capture.request import CaptureRequest
from gpu_plan.planner.walls.tree import Process, descendants, proportional_bytes

_POLL_SECONDS, _SCRATCH_SECONDS, _TOLD_SECONDS = 0.05, 1.0, 10.0
_STILL_SECONDS, _STILL_SHARE = 60.0, 1 / 3
_LEAST_PROGRESS = 0.05
"""Seconds of processor time: less than that is what a process takes that only waits."""
_END_SECONDS = 60.0
_PIECE = 64 * 1024


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


def watch(
    process: "subprocess.Popen[bytes]", request: CaptureRequest, scratch: Path, note: Callable[[str], None]
) -> str | None:
    """Waits for the child; ends it, and says why, when it passes a limit."""
    progress = _Progress(request, note)
    try:
        measured = time.monotonic()
        while process.poll() is None:
            found = descendants(process.pid)
            broken = _past(found, request) or progress.past(found, time.monotonic())
            if broken is None and time.monotonic() - measured > _SCRATCH_SECONDS:
                broken, measured = _too_much(scratch, request), time.monotonic()
            if broken is not None:
                return broken
            time.sleep(_POLL_SECONDS)
        return None
    finally:
        _end(process)


class _Progress:
    """How far the child has come, in seconds of processor time."""

    def __init__(self, request: CaptureRequest, note: Callable[[str], None]) -> None:
        self._request, self._note = request, note
        self._started = self._moved = self._told = time.monotonic()
        self._used = self._used_when_moved = 0.0

    def past(self, found: dict[int, Process], now: float) -> str | None:
        """Which limit it has passed, if any."""
        limit = self._request.seconds
        self._used = max(self._used, sum(one.processor_seconds for one in found.values()))
        if self._used - self._used_when_moved >= _LEAST_PROGRESS:
            self._moved, self._used_when_moved = now, self._used
        if now - self._told >= _TOLD_SECONDS:
            self._told = now
            self._note(
                f"tracing {self._request.script}: not at its first optimizer step after {now - self._started:.0f} s,"
                f" {self._used:.0f} s of them computing (the limit is {limit:.0f})"
            )
        if self._used > limit:
            return (
                f"has not reached an optimizer step after {limit:.0f} s of processor time:"
                " --script-seconds allows it more"
            )
        still = max(_STILL_SECONDS, limit * _STILL_SHARE)
        if now - self._moved > still:
            return (
                f"has not reached an optimizer step, and has done nothing for {still:.0f} s:"
                " it waits for what does not come behind walls (--script-seconds waits longer)"
            )
        return None


def _past(found: dict[int, Process], request: CaptureRequest) -> str | None:
    """Which limit of size the processes are past, if any."""
    if len(found) > request.processes:
        return f"starts more than {request.processes} processes before its first step"
    if sum(one.resident_bytes for one in found.values()) <= request.resident_bytes:
        return None
    # Forked processes share pages: each counts its part only where the plain sum is too much.
    if sum(map(proportional_bytes, found)) <= request.resident_bytes:
        return None
    return f"takes more than {request.resident_bytes / 2**30:.0f} GiB of real memory before its first step"


def _too_much(scratch: Path, request: CaptureRequest) -> str | None:
    total = 0
    for folder, _, names in os.walk(scratch):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    if total <= request.written_bytes:
        return None
    return f"writes more than {request.written_bytes / 2**30:.0f} GiB before its first step"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Nothing that the script started outlives it: the warden ends all of it when it is told to end."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
