"""The manifest of a checkpoint: `plan-checkpoint.json` (I/O).

Ranks write it: the standard library, and numpy where files are read.
"""

import contextlib
import hashlib
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gpu_plan.executor.checkpoints.digest import PIECE, Digest, digest_files, first_difference

SCHEMA_VERSION = 2
_READ_VERSIONS = (1, 2)
"""Version 1 had a digest of files up to 64 KiB only, and none of itself."""
MANIFEST_FILE = "plan-checkpoint.json"
MARKER_PREFIX = ".plan-rank-"
_MOST_BYTES = 1 << 28
"""Of a manifest: that of a checkpoint of 100 TB takes a fifth of it."""
_SEAL = re.compile(rb',\n "crc32": "([0-9a-f]{8})"\n\}\n\Z')
"""The end of a manifest: the CRC-32 of all that stands before it."""

REPLICATED = "replicated"
"""One whole model and optimizer: accelerate's `model.safetensors` and `optimizer.bin`, the Trainer's `optimizer.pt`."""
FULL = "fsdp-full"
"""One whole model and optimizer gathered by FSDP: `pytorch_model_fsdp.bin`."""
DCP = "fsdp-dcp"
"""FSDP shards as torch.distributed.checkpoint writes them: `pytorch_model_fsdp_0/`, `optimizer_0/`."""
DEEPSPEED = "deepspeed"
"""`mp_rank_*_model_states.pt` with one optimizer file for each rank."""
DEEPSPEED_UNIVERSAL = "deepspeed-universal"
"""As deepspeed.checkpoint.ds_to_universal writes it: one folder for each parameter."""
SPREAD = "transformers-dcp"
"""torch.distributed.checkpoint as transformers writes it for models that are spread over ranks: `spread_model_0/`,
`spread_optimizer_0/`. Parameters are named, so that any degrees read it, one process too."""
LAYOUTS = (REPLICATED, FULL, DCP, DEEPSPEED, DEEPSPEED_UNIVERSAL, SPREAD)


class ManifestError(Exception):
    """Why a folder is no complete checkpoint: one line without the folder's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a checkpoint."""

    bytes: int
    digest: str | None = None
    """Of every byte, as `digest.Digest.digits` has it; None in a manifest of version 1."""
    sha256: str | None = None
    """Only in a manifest of version 1, and there of small files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a complete checkpoint says of itself."""

    schema_version: int = SCHEMA_VERSION
    run_id: str = ""
    """Run that saved it; empty outside one."""
    attempt: int = 1
    step: int
    """Optimizer steps done since the start of the job."""
    samples: int | None = None
    """Samples that all ranks together have consumed since the start of the job. None: not seen."""
    stack: str
    """`accelerate`, `trainer`, `lightning` or `plain`: whose loader reads it."""
    layout: str
    """One of LAYOUTS."""
    strategy: str
    """`single`, `ddp`, `fsdp`, `fsdp1`, `hsdp`, `zero1`, `zero2`, `zero3`."""
    world_size: int
    model_class: str = ""
    """Class of the model that was saved, its wrappers taken away; empty: not seen, or several."""
    parameters: int | None = None
    """Their number, all models together, as in the plan; None: not seen."""
    micro_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    schedule_pace: int | None = None
    """How often Accelerate advances a schedule for one optimizer step; None: once for each rank."""
    random_states: bool = True
    """Whether every rank's random states are in it: without, dropout goes on with others."""
    resumable: bool = True
    """False where only weights were saved."""
    created: float
    """Seconds since the epoch."""
    parameter_names: tuple[str, ...] = ()
    """Of a replicated checkpoint: names in the order by which its optimizer numbers parameters; empty where there are
    several models or optimizers."""
    converted_from: str | None = None
    """Folder of the checkpoint that this one was made from."""
    versions: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    """By path relative to the folder, with forward slashes."""

    @property
    def pace(self) -> int:
        """Of its schedules: see `schedule_pace`."""
        return self.world_size if self.schedule_pace is None else self.schedule_pace

    @property
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(entry.bytes for entry in self.files.values())


def list_files(folder: Path, *, flush: bool = False, known: Mapping[str, Digest] | None = None) -> dict[str, FileEntry]:
    """Every file of a checkpoint but markers and manifest; `flush` waits until each has reached the disk.

    `known`: what ranks have read, and flushed, of files that they wrote: holds where the file has not changed since.
    Raises OSError.
    """
    files, entries, unread = dict(files_of(folder)), dict[str, FileEntry](), dict[str, Path]()
    for name, path in files.items():
        digest, seen = (known or {}).get(name), path.stat()
        if digest is not None and (digest.bytes, digest.changed) == (seen.st_size, seen.st_mtime_ns):
            entries[name] = FileEntry(bytes=digest.bytes, digest=digest.digits)
        else:
            unread[name] = path
    read = digest_files(unread.values(), flush=flush)
    for name, path in unread.items():
        entries[name] = FileEntry(bytes=read[path].bytes, digest=read[path].digits)
    return {name: entries[name] for name in files}


_OURS = (MARKER_PREFIX, f".{MARKER_PREFIX}", f".{MANIFEST_FILE}")
"""Beginnings of the names of markers, and of markers and manifests that another rank is writing at this moment."""


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names, relative to the folder, and paths of a checkpoint's own files, sorted. Raises OSError."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST_FILE and not path.name.startswith(_OURS):
            yield name, path


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Puts the manifest into the folder in one piece. Raises OSError."""
    value = asdict(manifest)
    for entry in value["files"].values():
        if entry["sha256"] is None:
            del entry["sha256"]
    _write(folder / MANIFEST_FILE, sealed(value))


def sealed(value: Mapping[str, Any]) -> bytes:
    """A manifest's fields as the text of its file, which ends with a digest of itself."""
    head = json.dumps(value, indent=1, allow_nan=False).removesuffix("\n}").encode("ascii")
    return head + f',\n "crc32": "{zlib.crc32(head):08x}"\n}}\n'.encode()


def write_json(path: Path, value: object) -> None:
    """Replaces `path` in one piece and waits for the disk. Raises OSError; nothing is left behind then."""
    _write(path, json.dumps(value, indent=1, allow_nan=False).encode("ascii"))


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, its files not looked at. ManifestError where there is none that makes sense."""
    path = folder / MANIFEST_FILE
    try:
        seen = path.stat()
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > _MOST_BYTES:
            raise ManifestError(f"its {MANIFEST_FILE} is not a regular file of less than {_MOST_BYTES >> 20} MiB")
        content = path.read_bytes()
    except FileNotFoundError:
        raise ManifestError(f"it has no {MANIFEST_FILE}: saving did not end, or nobody recorded that it did") from None
    except OSError as error:
        raise ManifestError(f"its {MANIFEST_FILE} cannot be read: {error.strerror or error}") from None
    seal = _SEAL.search(content)
    if seal is not None and int(seal[1], 16) != zlib.crc32(content[: seal.start()]):
        raise ManifestError(f"its {MANIFEST_FILE} is damaged: its digest differs")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise ManifestError(f"its {MANIFEST_FILE} is not complete JSON") from None
    return _parse(value, whole=seal is not None)


def _parse(value: Any, *, whole: bool) -> Manifest:
    """`whole`: whether the text ended with its own digest, and that was right."""
    if not isinstance(value, dict):
        raise ManifestError(f"its {MANIFEST_FILE} holds no object")
    version = value.get("schema_version")
    if type(version) is not int or version not in _READ_VERSIONS:
        raise ManifestError(f"its {MANIFEST_FILE} has schema version {version!r:.20}")
    if version > 1 and not whole:
        raise ManifestError(f"its {MANIFEST_FILE} is damaged: it does not end with its digest")
    known = {entry.name for entry in fields(Manifest)}
    given = {name: item for name, item in value.items() if name in known}
    try:
        files = {str(name): _entry(item) for name, item in given.pop("files").items()}
        order = tuple(given.pop("parameter_names", ()))
        made = Manifest(files=files, parameter_names=order, **given)
        sound = (
            made.layout in LAYOUTS
            and all(type(number) is int and number >= 0 for number in (made.step, made.world_size, made.attempt))
            and all(
                number is None or type(number) is int for number in (made.samples, made.parameters, made.schedule_pace)
            )
            and all(isinstance(word, str) for word in (made.stack, made.strategy, made.run_id, made.model_class))
            and all(isinstance(name, str) for name in order)
            and isinstance(made.versions, dict)
            and float(made.created) >= 0
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise ManifestError(f"its {MANIFEST_FILE} does not hold what it should")
    return made


def _entry(item: Any) -> FileEntry:
    size, digest, sha256 = item["bytes"], item.get("digest"), item.get("sha256")
    if type(size) is not int or not all(isinstance(word, (str, type(None))) for word in (digest, sha256)):
        raise TypeError
    return FileEntry(bytes=size, digest=digest, sha256=sha256)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compares every byte of the folder with its manifest, as far as that covers them. Raises ManifestError."""
    covered: dict[Path, str] = {}
    top = folder.resolve()
    for name, entry in manifest.files.items():
        path = folder / name
        try:
            if not path.resolve().is_relative_to(top):
                raise ManifestError(f"its {MANIFEST_FILE} names {name!r:.60}, which lies outside")
            seen = path.stat()
        except FileNotFoundError:
            raise ManifestError(f"{name} is missing") from None
        except OSError as error:
            raise ManifestError(f"{name} cannot be read: {error.strerror or error}") from None
        if not stat.S_ISREG(seen.st_mode):
            raise ManifestError(f"{name} is not a regular file")
        if seen.st_size != entry.bytes:
            raise ManifestError(f"{name} has {seen.st_size:,} bytes, {entry.bytes:,} were saved")
        covered[path] = name
    try:
        read = digest_files(path for path, name in covered.items() if manifest.files[name].digest is not None)
        for path, name in covered.items():
            _compare(name, manifest.files[name], path, read.get(path))
    except OSError as error:
        where = Path(error.filename).name if error.filename else "a file"
        raise ManifestError(f"{where} cannot be read: {error.strerror or error}") from None


def _compare(name: str, entry: FileEntry, path: Path, read: Digest | None) -> None:
    if entry.sha256 is not None and hashlib.sha256(path.read_bytes()).hexdigest() != entry.sha256:
        raise ManifestError(f"{name} is not what was saved: its digest differs")
    if entry.digest is None or read is None or read.digits == entry.digest:
        return
    first = first_difference(entry.digest, read.digits)
    last = min(first + PIECE, entry.bytes) - 1
    raise ManifestError(f"{name} is not what was saved: it is damaged somewhere in bytes {first:,} to {last:,}")
