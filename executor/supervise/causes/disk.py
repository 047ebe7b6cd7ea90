"""Whether a disk was full: torch and safetensors often say something else then (I/O)."""

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from gpu_plan.planner.units import format_bytes

LITTLE = 4 * 1024 * 1024
"""Bytes below which a disk counts as full: what is kept free for ranks' last records is given back by then."""


def full_disks(places: Iterable[Path]) -> tuple[str, ...]:
    """One phrase for each place that has next to nothing free, in order; other places of the same disk are left out."""
    found: dict[int, str] = {}
    for place in places:
        with contextlib.suppress(OSError):
            device, free = place.stat().st_dev, shutil.disk_usage(place).free
            if free < LITTLE:
                found.setdefault(device, f"the disk of {place} has {format_bytes(free)} left")
    return tuple(found.values())


def free_bytes(path: Path) -> int | None:
    """What is free where `path` is, or would be; None where nobody can tell."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None
