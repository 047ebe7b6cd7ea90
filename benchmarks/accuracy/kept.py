"""Rows that are scored already: one line of JSON each, so that a run that was stopped goes on where it stopped.

The first line tells the state of the code; of another state nothing is taken. A line that was cut short is dropped.
Several processes may add to one file at once: each line is one write.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.accuracy.figures import FAULT, Aside, Line
from benchmarks.accuracy.row import Row
from benchmarks.accuracy.truth import Kind
from gpu_plan.planner.errors import UnreachableError

_ROOTS = (Path(__file__).parents[2] / "planner", Path(__file__).parent)
_TEXTS = frozenset({".py", ".toml", ".json", ".c"})
_LIBRARIES = ("torch", "transformers", "peft", "accelerate", "deepspeed", "torchao", "bitsandbytes")


def state_of_code() -> str:
    """Digest of what a figure follows from: this program, the rules here, and the versions that are traced."""
    digest = hashlib.sha256()
    for root in _ROOTS:
        for path in sorted(root.rglob("*")):
            if path.suffix in _TEXTS:
                digest.update(f"{root.name}/{path.relative_to(root)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    for name in _LIBRARIES:
        digest.update(f"{name}={_version(name)};".encode())
    return digest.hexdigest()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


class Kept:
    """What one file holds, and where more is added."""

    def __init__(self, path: Path, state: str) -> None:
        """UnreachableError where the file cannot be read or written."""
        self._path, self._state = path, state
        self._found: dict[str, Mapping[str, Any]] = {}
        try:
            self._open()
        except (OSError, UnicodeDecodeError) as problem:
            raise UnreachableError(f"--keep {path}: {problem}") from None

    def _open(self) -> None:
        lines = list(_objects(self._path)) if self._path.exists() else []
        if lines and lines[0].get("state") == self._state:
            self._found = {str(line.get("key")): line for line in lines[1:]}
            self._write("\n")  # behind a line that was cut short
            return
        if lines:
            print(f"accuracy: note: {self._path}: kept by other code, begun anew", file=sys.stderr)
        self._path.write_text(json.dumps({"state": self._state}) + "\n", encoding="utf-8")

    def __len__(self) -> int:
        return len(self._found)

    def get(self, row: Row, kind: Kind) -> Line | Aside | None:
        """What came of a row; None where it is still to be scored."""
        found = self._found.get(_key(row, kind))
        if found is None:
            return None
        line, aside = found.get("line"), found.get("aside")
        return dict(line) if isinstance(line, dict) else Aside(**aside) if isinstance(aside, dict) else None

    def add(self, row: Row, kind: Kind, found: Line | Aside) -> None:
        """A row that has just been judged; one that failed here is tried again the next time."""
        if isinstance(found, Aside) and found.reason.startswith(FAULT):
            return
        came = {"aside": asdict(found)} if isinstance(found, Aside) else {"line": found}
        self._write(json.dumps({"key": _key(row, kind), **came}) + "\n")

    def _write(self, text: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)


def _key(row: Row, kind: Kind) -> str:
    """The row as it stands, and what it is taken to measure."""
    return hashlib.sha256(json.dumps([str(kind), row], sort_keys=True).encode()).hexdigest()


def _objects(path: Path) -> Iterator[Mapping[str, Any]]:
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
