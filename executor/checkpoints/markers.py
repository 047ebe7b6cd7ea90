"""Marks that ranks leave in a folder while they save, and the manifest that follows the last one (I/O).

The standard library only: this runs in the ranks. No rank waits for another.
"""

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_plan.executor.checkpoints.manifest import (
    MANIFEST_FILE,
    MARKER_PREFIX,
    Manifest,
    list_files,
    write_json,
    write_manifest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One rank's part of one saving."""

    folder: Path
    rank: int
    key: str
    """The same on every rank for the same saving, and never for another: run, attempt, step, how often."""
    samples: int | None = None
    """Consumed by this rank since the attempt began."""


def begin(part: Part) -> None:
    """Before a rank saves: what stands in the folder is no checkpoint any more. Raises OSError."""
    part.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (part.folder / MANIFEST_FILE).unlink()
    _mark(part, done=False)


def finish(part: Part) -> None:
    """After a rank has saved. Raises OSError."""
    _mark(part, done=True)


def _mark(part: Part, *, done: bool) -> None:
    content = {"key": part.key, "done": done, "samples": part.samples}
    write_json(part.folder / f"{MARKER_PREFIX}{part.rank}.json", content)


def finished(folder: Path, key: str, world_size: int) -> list[int | None] | None:
    """What each rank has consumed, in rank order; None while one of them has not finished this saving."""
    consumed = []
    for rank in range(world_size):
        marker = _read(folder / f"{MARKER_PREFIX}{rank}.json")
        if marker.get("key") != key or marker.get("done") is not True:
            return None
        consumed.append(marker.get("samples"))
    return consumed


def complete(part: Part, facts: Manifest, *, only_this_rank: bool = False) -> bool:
    """Writes the manifest if every rank has finished; False while one has not. Raises OSError.

    `facts.samples` is what had been consumed before this attempt. `only_this_rank`: the others have passed this point
    without saving, so that a checkpoint which one rank can write alone has all that it will have.
    """
    consumed = finished(part.folder, part.key, facts.world_size)
    manifest = facts
    if consumed is None:
        if not only_this_rank:
            return False
        consumed = [part.samples] * facts.world_size
        manifest = replace(facts, random_states=facts.world_size == 1)
    samples = None if None in consumed or facts.samples is None else facts.samples + sum(n for n in consumed if n)
    files = list_files(part.folder, flush=True)
    write_manifest(part.folder, replace(manifest, samples=samples, files=files, created=time.time()))
    return True


def _read(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def manifest_without_files(**fields: Any) -> Manifest:
    """Facts of a saving that is under way."""
    return Manifest(created=time.time(), **fields)
