"""From which checkpoint the next attempt goes on (I/O)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from executor.checkpoints.find import newest_complete, torn
from executor.job import Job
from executor.records.rank import RankRecord
from executor.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Where an attempt begins."""

    path: Path | None = None
    """The checkpoint to load; None for a start from nothing."""
    step: int = 0
    """The last step that it holds."""
    notes: tuple[str, ...] = ()
    """For people: what was found, skipped, refused."""


def find_resumption(job: Job, folder: RunFolder, roots: Iterable[Path]) -> Resumption:
    """The newest complete checkpoint of this run that the job's strategy can load."""
    places = (folder.path, *roots)
    broken = tuple(f"skipped {one.path}: {one.reason}" for one in torn(places))
    found = newest_complete(places, run_id=folder.run_id)
    if found is None:
        return Resumption(notes=(*broken, "this run has no complete checkpoint: from the beginning"))
    return Resumption(path=found.path, step=found.manifest.step, notes=broken)


def checkpoint_roots(ranks: Iterable[RankRecord], working_directory: Path) -> set[Path]:
    """Folders in which ranks saved checkpoints, wherever the script put them."""
    return {(working_directory / folder).parent for rank in ranks for folder in rank.checkpoints}
