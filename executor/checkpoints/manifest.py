"""The manifest of a checkpoint: `plan-checkpoint.json`. Imports the standard library only: ranks write it (I/O)."""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
MANIFEST_FILE = "plan-checkpoint.json"
MARKER_PREFIX = ".plan-rank-"
DIGEST_LIMIT = 64 * 1024
"""Bytes up to which a file's content is digested too."""

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
LAYOUTS = (REPLICATED, FULL, DCP, DEEPSPEED, DEEPSPEED_UNIVERSAL)


class ManifestError(Exception):
    """Why a folder is no complete checkpoint: one line without the folder's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a checkpoint."""

    bytes: int
    sha256: str | None = None
    """Of files up to DIGEST_LIMIT bytes."""


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
    micro_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
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
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(entry.bytes for entry in self.files.values())


def list_files(folder: Path, *, flush: bool = False) -> dict[str, FileEntry]:
    """Every file of a checkpoint but markers and manifest; `flush` waits until each has reached the disk.

    Raises OSError.
    """
    found: dict[str, FileEntry] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name == MANIFEST_FILE or path.name.startswith((MARKER_PREFIX, f".{MANIFEST_FILE}")):
            continue
        with path.open("rb") as file:
            if flush:
                os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256(file.read()).hexdigest() if size <= DIGEST_LIMIT else None
        found[name] = FileEntry(bytes=size, sha256=digest)
    return found


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Puts the manifest into the folder in one piece. Raises OSError."""
    write_json(folder / MANIFEST_FILE, asdict(manifest))


def write_json(path: Path, value: object) -> None:
    """Replaces `path` in one piece and waits for the disk. Raises OSError; nothing is left behind then."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("w", encoding="ascii") as file:
            json.dump(value, file, indent=1, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, its files not looked at. ManifestError where there is none that makes sense."""
    try:
        value = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ManifestError(f"it has no {MANIFEST_FILE}: saving did not end, or nobody recorded that it did") from None
    except OSError as error:
        raise ManifestError(f"its {MANIFEST_FILE} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise ManifestError(f"its {MANIFEST_FILE} is not complete JSON") from None
    return _parse(value)


def _parse(value: Any) -> Manifest:
    if not isinstance(value, dict):
        raise ManifestError(f"its {MANIFEST_FILE} holds no object")
    if value.get("schema_version") != SCHEMA_VERSION:
        raise ManifestError(f"its {MANIFEST_FILE} has schema version {value.get('schema_version')!r:.20}")
    known = {entry.name for entry in fields(Manifest)}
    given = {name: item for name, item in value.items() if name in known}
    try:
        files = {str(name): _entry(item) for name, item in given.pop("files").items()}
        order = tuple(given.pop("parameter_names", ()))
        made = Manifest(files=files, parameter_names=order, **given)
        sound = (
            made.layout in LAYOUTS
            and all(type(number) is int and number >= 0 for number in (made.step, made.world_size, made.attempt))
            and (made.samples is None or type(made.samples) is int)
            and all(isinstance(word, str) for word in (made.stack, made.strategy, made.run_id))
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
    size, digest = item["bytes"], item.get("sha256")
    if type(size) is not int or not isinstance(digest, (str, type(None))):
        raise TypeError
    return FileEntry(bytes=size, sha256=digest)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compares the folder with its manifest: sizes of all files, content of the small ones. Raises ManifestError."""
    for name, entry in manifest.files.items():
        path = folder / name
        try:
            if not path.resolve().is_relative_to(folder.resolve()):
                raise ManifestError(f"its {MANIFEST_FILE} names {name!r:.60}, which lies outside")
            size = path.stat().st_size
            same = entry.sha256 is None or size != entry.bytes or _digest(path) == entry.sha256
        except FileNotFoundError:
            raise ManifestError(f"{name} is missing") from None
        except OSError as error:
            raise ManifestError(f"{name} cannot be read: {error.strerror or error}") from None
        if size != entry.bytes:
            raise ManifestError(f"{name} has {size:,} bytes, {entry.bytes:,} were saved")
        if not same:
            raise ManifestError(f"{name} is not what was saved: its digest differs")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
