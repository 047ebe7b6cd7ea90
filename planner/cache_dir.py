"""Where results are kept between runs, how entries are named, and how they are written (I/O)."""

import contextlib
import functools
import hashlib
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
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
    """Versions of those of these distributions that are installed.

    Read off the names of their `.dist-info` folders, as importlib.metadata finds them: to import that takes longer than
    to look. It is asked where something was installed in another way.
    """
    known = _distributions(tuple(sys.path))
    found = {}
    for name in names:
        version = known.get(_normalized(name))
        if version is not None:
            found[name] = version or _told(name)
    return found


@functools.cache
def _distributions(path: tuple[str, ...]) -> Mapping[str, str]:
    """Versions by normalised names, the first on the path first; empty where the folder's name does not say it."""
    found: dict[str, str] = {}
    for folder in path:
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder or "."):
                stem, kind = os.path.splitext(entry)
                name, _, version = stem.partition("-")
                if kind == ".dist-info" and os.path.exists(os.path.join(folder, entry, "METADATA")):
                    found.setdefault(_normalized(name), version)
                elif kind == ".egg-info":
                    found.setdefault(_normalized(name), _egg_version(os.path.join(folder, entry, "PKG-INFO")))
    return found


def _egg_version(path: str) -> str:
    """What an installation in place says of itself; empty where it does not."""
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        for line in itertools.takewhile(str.strip, file):  # headers end at the first empty line
            if line.startswith("Version: "):
                return line.removeprefix("Version: ").strip()
    return ""


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _told(name: str) -> str:
    from importlib import metadata

    return metadata.version(name)


@functools.cache
def program_digest(root: Path = Path(__file__).parent) -> str:
    """Digest of what this program's own files say: entries of another state are never read, and equal files that were
    installed elsewhere, or anew, share theirs.

    It is kept by what the system says of the files: to read all of them takes six times as long as to ask for that.
    """
    files = sorted(_own_files(str(root)))
    state = hashlib.sha256()
    for path in files:
        stat = os.stat(path)
        state.update(f"{path} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino};".encode())
    kept = cache_dir() / "programs" / state.hexdigest()[:32]
    with contextlib.suppress(DamagedEntryError):
        known = read_entry(kept)
        if known is not None:
            return known.decode()
    found = _content(files, len(str(root)))
    write_entry(kept, found.encode())
    return found


def _own_files(folder: str) -> Iterator[str]:
    """Code and facts, in any order."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and entry.name != "__pycache__":
                yield from _own_files(entry.path)
            elif entry.name.endswith((".py", ".toml")):
                yield entry.path


def _content(files: Iterable[str], root: int) -> str:
    """Of files by their place under the folder whose name has `root` characters."""
    digest = hashlib.sha256()
    for path in files:
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        digest.update(f"{path[root:]} {len(content)};".encode())
        digest.update(content)
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
