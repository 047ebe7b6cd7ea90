"""Where results are kept between runs, how entries are named, and how they are written (I/O)."""

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from gpu_plan.planner.whole_file import replace_file

_CHECKSUM = hashlib.sha256().digest_size
TRACED_WITH = ("torch", "transformers", "accelerate", "peft")
"""Packages whose version is part of what a trace says."""


def cache_dir() -> Path:
    """`$GPU_PLAN_CACHE`, else `$XDG_CACHE_HOME/gpu-plan`, else `~/.cache/gpu-plan`."""
    given = os.environ.get("GPU_PLAN_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gpu-plan"


@functools.cache
def versions() -> Mapping[str, str]:
    """Versions of this program and of what it traces with, read without importing them."""
    names = ("gpu-plan", *TRACED_WITH)
    return dict.fromkeys(names, "absent") | installed(names)


def installed(names: Iterable[str]) -> dict[str, str]:
    """Versions of those of these distributions that are installed."""
    found = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@functools.cache
def program_digest() -> str:
    """Digest of this program's own files (names, sizes, times): entries of another state are never read."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".toml"):
            stat = path.stat()
            digest.update(f"{path.relative_to(root)} {stat.st_size} {stat.st_mtime_ns};".encode())
    return digest.hexdigest()


def entry_name(*parts: str) -> str:
    """Name of an entry that depends on `parts`, the versions and this program's state."""
    digest = hashlib.sha256()
    for part in (*parts, *(f"{name}={version}" for name, version in versions().items()), program_digest()):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


class DamagedEntryError(Exception):
    """An entry that is not what was written: cut short, changed, or somebody else's file."""


def read_entry(path: Path) -> bytes | None:
    """What `write_entry` kept there, None where nothing is; DamagedEntryError where its checksum does not hold."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    checksum, content = kept[:_CHECKSUM], kept[_CHECKSUM:]
    if checksum != hashlib.sha256(content).digest():
        raise DamagedEntryError(str(path))
    return content


def write_entry(path: Path, content: bytes) -> None:
    """Keeps an entry, behind its checksum, whole or not at all; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, hashlib.sha256(content).digest() + content)
