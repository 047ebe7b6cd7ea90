"""What a rank's devices hold, by interval: each GPU's allocator, and this process's resident memory (I/O)."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_plan.executor.runner.memory.process import ResidentMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One stretch of a run."""

    seconds: float
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Highest bytes by device: allocated on `cuda:N`, resident on `cpu`."""


class Meter:
    """Cuts time into intervals. `devices`: those of the map, as torch names them."""

    def __init__(self, torch: Any, devices: tuple[str, ...]) -> None:
        self._torch = torch
        self._gpus = tuple(name for name in devices if name.startswith("cuda"))
        self._resident = ResidentMemory()
        self.base_resident = self._resident.resident() or 0
        self._began = time.perf_counter()
        self.cut()

    def cut(self) -> Interval:
        """The interval since the last cut; all devices have finished their work by then."""
        for name in self._gpus:
            self._torch.cuda.synchronize(name)
        now = time.perf_counter()
        resident, _ = self._resident.border()
        peaks = {"cpu": resident} if resident is not None else {}
        for name in self._gpus:
            peaks[name] = self._torch.cuda.max_memory_allocated(name)
            self._torch.cuda.reset_peak_memory_stats(name)
        found = Interval(seconds=now - self._began, peaks=peaks)
        self._began = time.perf_counter()
        return found
