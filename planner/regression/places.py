"""Lines of the project's own files: where a table or key stands, and what a line says (I/O where named)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.planner.foreign.files import read_bytes

_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_PART = re.compile(r'"([^"]*)"|\'([^\']*)\'|([A-Za-z0-9_-]+)')
_LONGEST = 80
_MAX_BYTES = 2**21


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of a file of the project."""

    file: str
    """Relative to the project's root, with `/`."""
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


def place_of(text: str) -> Place:
    """What `str` of a place wrote."""
    file, _, line = text.rpartition(":")
    return Place(file=file, line=int(line)) if line.isdigit() and file else Place(file=text)


def toml_line(text: str, table: Sequence[str], key: str | None = None) -> int | None:
    """Line of a table's header, or of `key` in it; None where it is written in another form, such as inline."""
    wanted, inside, header = list(table), False, None
    for number, line in enumerate(text.splitlines(), 1):
        found = _HEADER.fullmatch(line)
        if found is not None:
            inside = _parts(found[1]) == wanted
            header = number if inside else header
            if inside and key is None:
                return number
        elif inside and key is not None and "=" in line and _parts(line.partition("=")[0])[:1] == [key]:
            return number
    return header


def _parts(dotted: str) -> list[str]:
    return ["".join(found) for found in _PART.findall(dotted)]


def json_line(text: str, key: str) -> int | None:
    """Line of the first `"key":` of a JSON document that stands in lines."""
    pattern = re.compile(rf'\s*"{re.escape(key)}"\s*:')
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), None)


@dataclass(slots=True)
class Sources:
    """Reads source lines of a project, each file once (I/O)."""

    root: Path
    home: Path
    """What origins are relative to: the script's folder, or the root."""
    _lines: dict[Path, list[str]] = field(default_factory=dict)

    def place(self, origin: str | None) -> Place | None:
        """`train.py:88` as a place of the project; None for no origin, or one outside of the project."""
        if not origin:
            return None
        name, _, line = origin.rpartition(":")
        path = (self.home / name).resolve()
        if not line.isdigit() or not path.is_relative_to(self.root):
            return None
        return Place(file=path.relative_to(self.root).as_posix(), line=int(line))

    def text(self, place: Place) -> str:
        """What the line says, without its indentation, cut to 80 characters; empty where it cannot be read."""
        if place.line is None:
            return ""
        path = self.root / place.file
        if path not in self._lines:
            self._lines[path] = _read(path).splitlines()
        lines = self._lines[path]
        said = " ".join(lines[place.line - 1].split()) if 0 < place.line <= len(lines) else ""
        return said if len(said) <= _LONGEST else said[: _LONGEST - 3] + "..."


def _read(path: Path) -> str:
    try:
        return read_bytes(path, _MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
