"""Whether the machine has the room that a device map asks for, and the folder for what goes to disk (I/O)."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpu_plan.executor.inference.job import CPU, DISK, Place
from gpu_plan.planner.errors import PreflightError, UnreachableError
from gpu_plan.planner.units import format_bytes

OFFLOAD_FOLDER = "offload"
"""Below the run folder: weights that the map puts on disk, one file each."""
OFFLOAD_OPTION = "--offload-folder"
_SLACK = 16 * 2**20
"""Bytes left free beside the weights: indexes, the run's own records."""


def check_disk(folder: Path, needed: int) -> None:
    """PreflightError where the disk below `folder` has no room for `needed` bytes of weights."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed and free < needed + _SLACK:
        raise PreflightError(
            f"{format_bytes(needed)} of the weights go to disk, {place} has {format_bytes(free)} free: make room, or"
            " name another --offload-folder"
        )


def check_devices(bytes_by_place: Mapping[Place, int], *, ranks: int = 1) -> None:
    """PreflightError for a GPU that is not there, and for more weights in RAM than it has."""
    import psutil

    numbers = [place for place in bytes_by_place if isinstance(place, int)]
    if numbers:
        import torch

        count = torch.cuda.device_count()
        if max(numbers) >= count:
            raise PreflightError(f"the device map names GPU {max(numbers)}, this machine has {count}")
    available = int(psutil.virtual_memory().available)
    needed = bytes_by_place.get(CPU, 0) * ranks
    if needed > available:
        raise PreflightError(
            f"{format_bytes(needed)} of the weights go to RAM, {format_bytes(available)} are available:"
            " plan with less of it, or free some"
        )


@contextmanager
def offload_folder(parent: Path, rank: int, places: Mapping[str, Place]) -> Iterator[Path | None]:
    """A folder of this process's own while the model lives; None where nothing goes to disk."""
    if DISK not in places.values():
        yield None
        return
    folder = parent / f"rank-{rank}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UnreachableError(f"{folder} cannot be made: {error.strerror or error}") from None
    try:
        yield folder
    finally:
        clear(parent, rank)


def clear_offload(run_folder: Path, arguments: Sequence[str], directory: Path) -> None:
    """What a killed process of a run has left on disk, wherever its words put it."""
    clear(run_folder / OFFLOAD_FOLDER)
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == OFFLOAD_OPTION:
            chosen = value if equals else next(iter(arguments[at + 1 : at + 2]), "")
            clear(offload_parent(directory / chosen, run_folder.name))


def offload_parent(chosen: Path, run_id: str) -> Path:
    """One run's own folder below the one that was chosen."""
    return chosen / f"plan-{run_id}"


def clear(parent: Path, rank: int | None = None) -> None:
    """Removes what one process offloaded, or all of them; an empty parent goes with it."""
    shutil.rmtree(parent if rank is None else parent / f"rank-{rank}", ignore_errors=True)
    if rank is not None and parent.is_dir() and not any(parent.iterdir()):
        shutil.rmtree(parent, ignore_errors=True)
