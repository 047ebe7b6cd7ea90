"""Finds complete checkpoints (I/O)."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor.checkpoints.manifest import (
    MANIFEST_FILE,
    MARKER_PREFIX,
    Manifest,
    ManifestError,
    check_files,
    read_manifest,
)
from gpu_plan.planner.errors import InputError, UnreachableError

MAX_DEPTH = 3
"""Levels below a root that are looked into; hidden folders are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete one."""

    path: Path
    """Absolute."""
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Torn:
    """A folder that was meant to be a checkpoint and is none."""

    path: Path
    reason: str
    """One line: what is missing or differs."""


def newest_complete(roots: Iterable[Path], *, run_id: str | None = None) -> Checkpoint | None:
    """The complete checkpoint with the most steps at or below `roots`; of equally many the original rather than a
    converted one, then the later one.

    `run_id`: only those that this run saved. Torn ones and those without an optimizer are passed over. None where there
    is none. Files of a candidate are checked newest first, so that older ones cost nothing.
    """
    for manifest, path in _newest_first(roots, run_id):
        try:
            check_files(path, manifest)
        except ManifestError:
            continue
        return Checkpoint(path=path, manifest=manifest)
    return None


def torn(roots: Iterable[Path]) -> tuple[Torn, ...]:
    """Folders at or below `roots` in which ranks began to save and which are not complete, each with why."""
    found = []
    for path in _folders(roots, markers=True):
        try:
            check_files(path, read_manifest(path))
        except ManifestError as error:
            found.append(Torn(path=path, reason=str(error)))
    return tuple(found)


def open_checkpoint(path: Path) -> Checkpoint:
    """The complete checkpoint at `path`.

    Raises UnreachableError where there is no such folder, InputError in one line where it is not complete.
    """
    folder = path.absolute()
    if not folder.is_dir():
        raise UnreachableError(f"{path} is no folder: name a checkpoint, such as one below runs/RUN/checkpoints")
    try:
        manifest = read_manifest(folder)
        check_files(folder, manifest)
    except ManifestError as error:
        raise InputError(f"{path} is not a complete checkpoint: {error}; resume from an older one") from None
    return Checkpoint(path=folder, manifest=manifest)


def _newest_first(roots: Iterable[Path], run_id: str | None) -> list[tuple[Manifest, Path]]:
    found = []
    for path in _folders(roots):
        try:
            manifest = read_manifest(path)
        except ManifestError:
            continue
        if manifest.resumable and run_id in (None, manifest.run_id):
            found.append((manifest, path))
    return sorted(found, key=_newness, reverse=True)


def _newness(found: tuple[Manifest, Path]) -> tuple[int, bool, float]:
    manifest, _ = found
    return manifest.step, manifest.converted_from is None, manifest.created


def _folders(roots: Iterable[Path], *, markers: bool = False) -> Iterator[Path]:
    """Folders with a manifest, with `markers` also those with a rank's marker; each once."""
    seen: set[Path] = set()
    for root in roots:
        top = Path(root).absolute()
        for place, folders, files in os.walk(top):
            path = Path(place)
            deep = len(path.parts) - len(top.parts) >= MAX_DEPTH
            folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
            marked = MANIFEST_FILE in files or (markers and any(name.startswith(MARKER_PREFIX) for name in files))
            if marked and path not in seen:
                seen.add(path)
                folders.clear()
                yield path
