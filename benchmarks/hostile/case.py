"""One hostile run."""

import os
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

CANARY = "code-ran"
"""What every payload would write, beside the input: a file of this name is code that ran."""

Special = Literal["fifo", "socket", "folder", "null", "zero", "environ", "loop", "gone", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`words` of `plan`, in a folder that holds `files` (paths relative to it)."""

    kind: str
    seed: int
    words: tuple[str, ...]
    files: Mapping[str, bytes | Special] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.seed}"


def lay_down(case: Case, folder: Path) -> None:
    """Writes the case's files. Names that the file system does not take are left out."""
    for name, content in case.files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                _special(path, content)
        except (OSError, ValueError):
            continue


def listed(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every entry below: mode, size and time of writing."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            status = os.lstat(path)
            size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
            time = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
            found[os.path.relpath(path, folder)] = (status.st_mode, size, time)
    return found


def _special(path: Path, kind: Special) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            here = os.getcwd()
            os.chdir(path.parent)
            try:
                server.bind(path.name)
            finally:
                os.chdir(here)
    elif kind == "folder":
        path.mkdir()
    elif kind == "unreadable":
        path.write_bytes(b"{}")
        path.chmod(0)
    else:
        target = {"null": "/dev/null", "zero": "/dev/zero", "environ": "/proc/self/environ", "loop": path.name}
        path.symlink_to(target.get(kind, "nowhere"))
