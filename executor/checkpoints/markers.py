"""Marks that ranks leave in a folder while they save, and the manifest that follows the last one (I/O).

The standard library only: this runs in the ranks. No rank waits for another.
"""

import contextlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpu_plan.executor.checkpoints.digest import Digest, digest_files
from gpu_plan.executor.checkpoints.manifest import (
    MANIFEST_FILE,
    MARKER_PREFIX,
    Manifest,
    files_of,
    list_files,
    write_json,
    write_manifest,
)

_NUMBERED = re.compile(r"(?:^__|_rank_|^random_states_|^rng_state_)(\d+)")
"""In the names of torch.distributed.checkpoint (`__0_0.distcp`), DeepSpeed, accelerate and the Trainer: whose it is."""


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
    """After a rank has saved: reads back what it wrote, while that is still in memory. Raises OSError.

    So each rank reads its own shards and none those of all. Which files are its own is told by their names; one that is
    taken for another's, or changes afterwards, is read by the rank that completes the checkpoint.
    """
    own = {path: name for name, path in files_of(part.folder) if _writer(path.name) == part.rank}
    try:
        read = digest_files(own, flush=True)
    except FileNotFoundError:
        # A temporary file of somebody who is still writing, gone since: what stays is read by whoever comes last.
        read = digest_files([path for path in own if path.is_file()], flush=True)
    _mark(part, done=True, read={own[path]: asdict(digest) for path, digest in read.items()})


def _writer(name: str) -> int:
    """The rank that writes a file of this name; the first one, where the name has no number."""
    found = _NUMBERED.search(name)
    return int(found[1]) if found else 0


def _mark(part: Part, *, done: bool, read: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    content = {"key": part.key, "done": done, "samples": part.samples, "read": read or {}}
    write_json(part.folder / f"{MARKER_PREFIX}{part.rank}.json", content)


def _read_by_ranks(part: Part, world_size: int) -> dict[str, Digest]:
    """What the ranks have read of this saving's files."""
    found: dict[str, Digest] = {}
    for rank in range(world_size):
        marker = _read(part.folder / f"{MARKER_PREFIX}{rank}.json")
        if marker.get("key") == part.key and marker.get("done") is True:
            found |= {name: Digest(**digest) for name, digest in marker.get("read", {}).items()}
    return found


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
    files = list_files(part.folder, flush=True, known=_read_by_ranks(part, facts.world_size))
    write_manifest(part.folder, replace(manifest, samples=samples, files=files, created=time.time()))
    return True


def _read(path: Path) -> Mapping[str, Any]:
    from gpu_plan.planner.foreign.files import read_bytes  # the standard library alone, as a rank may import

    try:
        value = json.loads(read_bytes(path, 1_000_000))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def manifest_without_files(**fields: Any) -> Manifest:
    """Facts of a saving that is under way."""
    return Manifest(created=time.time(), **fields)
