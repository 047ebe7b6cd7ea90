"""Memory bars as runs of cells: each part begins where the one before ended, against the capacity."""

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import AtPeak, MemoryFigures
from gpu_plan.reports.plan.words import memory_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row: `before` blank cells, then `cells` filled ones (0: too thin for a cell)."""

    key: str
    label: str
    bytes: int
    before: int
    cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalBar:
    """Cells that are surely used, those that may be, those free below the capacity, and those beyond it."""

    certain: int
    possible: int
    free: int
    capacity_cells: int


def category_bars(memory: MemoryFigures, width: int) -> list[Bar]:
    """A row per part that is not empty, together as long as the total."""
    scale = _scale(memory)
    bars, start = [], 0
    for key, label, size in memory_rows(memory):
        first, last = round(start * width / scale), round((start + size) * width / scale)
        before = min(first, width - 1)
        bars.append(Bar(key=key, label=label, bytes=size, before=before, cells=max(0, last - first)))
        start += size
    return bars


def total_bar(memory: MemoryFigures, width: int) -> TotalBar:
    """The whole device's row."""
    scale = _scale(memory)
    low = round(memory.device_used_low_bytes * width / scale)
    high = max(low, round(memory.device_used_high_bytes * width / scale))
    capacity = round(memory.capacity_bytes * width / scale)
    return TotalBar(certain=low, possible=high - low, free=max(0, capacity - high), capacity_cells=capacity)


def runs_of(at_peak: AtPeak, memory: MemoryFigures, width: int) -> tuple[list[tuple[str, int]], int]:
    """Category and cells of each part of what a rank has allocated, in the scale of the device's own bars, and the
    cells that stay free below the capacity."""
    scale, start, runs = _scale(memory), 0, []
    for key, size in at_peak.items().items():
        runs.append((key, round((start + size) * width / scale) - round(start * width / scale)))
        start += size
    return runs, max(0, round(memory.capacity_bytes * width / scale) - round(start * width / scale))


def _scale(memory: MemoryFigures) -> int:
    return max(memory.capacity_bytes, memory.device_used_high_bytes)
