"""Whether anything that a job of the project's own code rests on has changed, and what it came to before (I/O)."""

import hashlib
import os
import sysconfig
from pathlib import Path

from gpu_plan.planner.cache_dir import DamagedEntryError, cache_dir, entry_name, read_entry, write_entry
from gpu_plan.planner.capture.files import project_files
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.plan.codec import canonical, decode, dump, load_object
from gpu_plan.planner.regression.computed import Computed
from gpu_plan.planner.regression.jobs import CheckJob

_READ = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt", ".jinja")
_MAX_FILES = 20_000
_MAX_BYTES = 2**20


def state_key(job: CheckJob) -> str:
    """Name of what is kept for a job: of its words, the project's text files, the installed packages, the program.

    Files that are hidden, in another environment, or larger than 1 MiB count by their size alone. What a script
    reads beyond the project, such as a data set, is not seen.
    """
    root = job.path.parent
    digest = hashlib.sha256()
    for count, path in enumerate(project_files(root, _READ)):
        if count >= _MAX_FILES:
            raise InputError(f"{root} holds more than {_MAX_FILES} text files: add --no-cache")
        digest.update(str(path.relative_to(root)).encode(errors="surrogateescape") + b"\0")
        try:
            size = path.stat().st_size
            digest.update(read_bytes(path, _MAX_BYTES) if size <= _MAX_BYTES else str(size).encode())
        except OSError:
            digest.update(b"missing")
        digest.update(b"\0")
    words = (job.name, job.model, job.gpus, job.options, job.args, [budget.gpus for budget in job.budgets])
    return entry_name("check", canonical(words).decode(), str(root), digest.hexdigest(), _packages())


def _packages() -> str:
    """What is installed, by the names of its metadata folders, which hold the versions."""
    try:
        names = os.listdir(sysconfig.get_path("purelib"))
    except OSError:
        return ""
    return " ".join(sorted(name for name in names if name.endswith((".dist-info", ".egg-link", ".pth"))))


def kept(key: str) -> Computed | None:
    """What was computed before; None where nothing was, or it cannot be read."""
    path = _path(key)
    try:
        content = read_entry(path)
        return None if content is None else decode(Computed, load_object(content, str(path)), str(path))
    except (DamagedEntryError, InputError):
        return None


def keep(key: str, found: Computed) -> None:
    """Keeps it for the next time."""
    write_entry(_path(key), dump(found).encode())


def _path(key: str) -> Path:
    return cache_dir() / "checks" / f"{key}.json"
