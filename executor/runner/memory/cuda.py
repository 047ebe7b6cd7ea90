"""Memory of a CUDA device as the caching allocator counts it, by interval, unseen by the script.

The allocator keeps one peak, which an interval's figure needs reset at its beginning. So that the script's own
`torch.cuda.max_memory_allocated()` still means what it means without us, the two C functions that all of
`torch.cuda.memory` and `torch.accelerator.memory` come down to are wrapped: they show the highest peak since the
script's own last reset.
"""

from collections.abc import Iterator
from typing import Any


class PeakView:
    """The peaks that the script would see, kept over resets that it does not know of. Pure."""

    def __init__(self) -> None:
        self._peaks: dict[tuple[str, ...], int] = {}

    def fold(self, stats: dict[str, Any]) -> None:
        """Keeps the peaks of `stats`, the allocator's nested dictionary, before they are reset."""
        for path, values in _with_peak(stats, ()):
            self._peaks[path] = max(self._peaks.get(path, 0), values["peak"])

    def show(self, stats: dict[str, Any]) -> dict[str, Any]:
        """`stats` with its peaks raised, in place, to those kept."""
        for path, values in _with_peak(stats, ()):
            values["peak"] = max(values["peak"], self._peaks.get(path, 0))
        return stats

    def clear(self) -> None:
        """The script has reset its peaks."""
        self._peaks.clear()


def _with_peak(stats: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if "peak" in stats:
        yield path, stats
        return
    for name, inner in stats.items():
        if isinstance(inner, dict):
            yield from _with_peak(inner, (*path, name))


class CudaMemory:
    """Peaks of one device between borders."""

    def __init__(self, torch: Any, device: int) -> None:
        self.device = f"cuda:{device}"
        self._index, self._cuda = device, torch.cuda
        self._view = PeakView()
        self._allocated = self._reserved = 0
        # _cuda_memoryStats, _cuda_resetPeakMemoryStats: torch/cuda/memory.py; _accelerator_*: torch/accelerator.
        self._stats = torch._C._cuda_memoryStats
        self._reset = torch._C._cuda_resetPeakMemoryStats
        for name, stand_in in (
            ("_cuda_memoryStats", self._showing(torch._C._cuda_memoryStats)),
            ("_accelerator_getDeviceStats", self._showing(getattr(torch._C, "_accelerator_getDeviceStats", None))),
            ("_cuda_resetPeakMemoryStats", self._resetting(torch._C._cuda_resetPeakMemoryStats)),
            ("_accelerator_resetPeakStats", self._resetting(getattr(torch._C, "_accelerator_resetPeakStats", None))),
        ):
            if stand_in is not None:
                setattr(torch._C, name, stand_in)

    def border(self) -> tuple[int | None, int | None]:
        stats = self._stats(self._index)
        self._view.fold(stats)
        self._take(stats)
        allocated, reserved = self._allocated, self._reserved
        self._allocated = self._reserved = 0
        self._reset(self._index)
        return allocated, reserved

    def device_used(self) -> int | None:
        free, total = self._cuda.mem_get_info(self._index)
        return int(total - free)

    def note(self) -> str | None:
        return None

    def _take(self, stats: dict[str, Any]) -> None:
        self._allocated = max(self._allocated, stats["allocated_bytes"]["all"]["peak"])
        self._reserved = max(self._reserved, stats["reserved_bytes"]["all"]["peak"])

    def _showing(self, original: Any) -> Any:
        if original is None:
            return None

        def stats(index: int) -> dict[str, Any]:
            found: dict[str, Any] = original(index)
            return self._view.show(found) if index == self._index else found

        return stats

    def _resetting(self, original: Any) -> Any:
        if original is None:
            return None

        def reset(index: int) -> Any:
            if index == self._index:
                self._take(self._stats(index))
                self._view.clear()
            return original(index)

        return reset
