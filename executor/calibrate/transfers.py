"""Copies between host and device, and files."""

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from gpu_plan.executor.calibrate.timing import Bounds, seconds_of

_COPIED = 2**28
_WRITTEN = 2**26


def host_copy(device: torch.device, budget: float) -> Bounds | None:
    """Bytes per second of a large pinned copy to the device; None on a CPU."""
    if device.type == "cpu":
        return None
    source = torch.empty(_COPIED, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(_COPIED, dtype=torch.uint8, device=device)
    slow, usual, fast = seconds_of(lambda: target.copy_(source, non_blocking=True), device, budget)
    return _COPIED / slow, _COPIED / usual, _COPIED / fast


def disk(folder: Path | None = None) -> tuple[float | None, float | None]:
    """Bytes per second written to a file until it is on the disk, and read back; None where no file can be written.

    What is read was just written, so the reading is as fast as the system's cache where it has one.
    """
    block = os.urandom(_WRITTEN)
    try:
        with TemporaryDirectory(dir=folder) as place:
            path = Path(place) / "block"
            start = time.perf_counter()
            with path.open("wb") as file:
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
            written = time.perf_counter()
            path.read_bytes()
            read = time.perf_counter()
    except OSError:
        return None, None
    return _WRITTEN / (written - start), _WRITTEN / (read - written)
