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
class Incomplete:
    """A folder that was meant to be a checkpoint and is none."""

    path: Path
    reason: str
    """One line: what is missing or differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What lies at or below some folders."""

    newest: Checkpoint | None
    """Whole in every byte that its manifest covers."""
    skipped: tuple[Incomplete, ...]
    """Torn ones, and damaged ones that would have been newer."""


def newest_complete(
    roots: Iterable[Path], *, run_id: str | None = None, before: int | None = None
) -> Checkpoint | None:
    """The newest whole checkpoint, as `search` finds it."""
    return search(roots, run_id=run_id, before=before).newest


def search(roots: Iterable[Path], *, run_id: str | None = None, before: int | None = None) -> Found:
    """The complete checkpoint with the most steps at or below `roots`; of equally many the original rather than a
    converted one, then the later one.

    `run_id`: only those that this run saved; `before`: only those of fewer steps. Torn ones and those without an
    optimizer are passed over. Files of a candidate are read newest first, so that older ones cost nothing.
    """
    candidates, skipped = [], []
    for path in _folders(roots):
        try:
            manifest = read_manifest(path)
        except ManifestError as error:
            skipped.append(Incomplete(path=path, reason=str(error)))
            continue
        early = before is None or manifest.step < before
        if manifest.resumable and early and run_id in (None, manifest.run_id):
            candidates.append((manifest, path))
    for manifest, path in sorted(candidates, key=_newness, reverse=True):
        try:
            check_files(path, manifest)
        except ManifestError as error:
            skipped.append(Incomplete(path=path, reason=str(error)))
            continue
        return Found(newest=Checkpoint(path=path, manifest=manifest), skipped=tuple(skipped))
    return Found(newest=None, skipped=tuple(skipped))


def open_checkpoint(path: Path) -> Checkpoint:
    """The complete checkpoint at `path`.

    Raises UnreachableError where there is no such folder, InputError in one line where it is not complete.
    """
    if not os.path.isdir(path):
        raise UnreachableError(f"{path} is not a folder: name a checkpoint, such as one below runs/RUN/checkpoints")
    try:
        return check_whole(path)
    except ManifestError as error:
        raise InputError(f"{path} is not a complete checkpoint: {error}; resume from an older one") from None


def check_whole(path: Path) -> Checkpoint:
    """The checkpoint at `path`, every byte of it compared. Raises ManifestError."""
    folder = path.absolute()
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    return Checkpoint(path=folder, manifest=manifest)


def is_ours(path: Path) -> bool:
    """Whether ranks of a run have saved a checkpoint at `path`, or begun to."""
    try:
        return any(name == MANIFEST_FILE or name.startswith(MARKER_PREFIX) for name in os.listdir(path))
    except (OSError, ValueError):
        return False


def _newness(found: tuple[Manifest, Path]) -> tuple[int, bool, float]:
    manifest, _ = found
    return manifest.step, manifest.converted_from is None, manifest.created


def _folders(roots: Iterable[Path]) -> Iterator[Path]:
    """Folders with a manifest, or in which ranks began to save; each once."""
    seen: set[Path] = set()
    for root in roots:
        top = Path(root).absolute()
        for place, folders, files in os.walk(top):
            path = Path(place)
            deep = len(path.parts) - len(top.parts) >= MAX_DEPTH
            folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
            marked = MANIFEST_FILE in files or any(name.startswith(MARKER_PREFIX) for name in files)
            if marked and path not in seen:
                seen.add(path)
                folders.clear()
                yield path
