"""Waits for the capturing child, and ends it when it passes a limit (I/O)."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.planner.capture.request import CaptureRequest
from gpu_plan.planner.walls.processes.watch import POLL_SECONDS, Limits, Watch, end

if TYPE_CHECKING:
    import subprocess


def watch(
    process: "subprocess.Popen[bytes]", request: CaptureRequest, scratch: Path, note: Callable[[str], None]
) -> str | None:
    """Waits for the child; ends it, and says why, when it passes a limit."""
    limits = Limits(
        name=request.script,
        aim="an optimizer step",
        seconds=request.seconds,
        resident_bytes=request.resident_bytes,
        written_bytes=request.written_bytes,
        processes=request.processes,
    )
    watched = Watch(limits, process.pid, scratch, note)
    try:
        while process.poll() is None:
            broken = watched.broken()
            if broken is not None:
                return broken
            time.sleep(POLL_SECONDS)
        return None
    finally:
        end(process)
