"""Reads a training script, without running it (I/O)."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.foreign.files import read_bytes

_MAX_BYTES = 4 * 2**20
_NOTEBOOK = ".ipynb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A parsed script or notebook."""

    path: Path
    source: str
    """Its code; of a notebook, the code cells one after another, magics as comments."""
    tree: ast.Module
    cells: tuple[int, ...] = ()
    """Line of `source` on which each code cell of a notebook begins, from 1; empty for a script."""

    @property
    def is_notebook(self) -> bool:
        return self.path.suffix == _NOTEBOOK

    def place(self, line: int) -> str:
        """Where a line of `source` stands, for messages: `train.py:12`, of a notebook `a.ipynb cell 3 line 2`."""
        starts = [start for start in self.cells if start <= line]
        if not starts:
            return f"{self.path}:{line}"
        return f"{self.path} cell {len(starts)} line {line - starts[-1] + 1}"


def read_script(path: Path) -> Script:
    """The script at `path`. UnreachableError where there is none, InputError with the line where it does not parse."""
    source, cells = _source(path)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        draft = Script(path=path, source=source, tree=ast.Module(body=[], type_ignores=[]), cells=cells)
        raise InputError(f"{draft.place(error.lineno or 1)}: the script does not parse: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: the script does not parse: {error}") from None
    return Script(path=path, source=source, tree=tree, cells=cells)


def _source(path: Path) -> tuple[str, tuple[int, ...]]:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder: name the training script in it")
        content = read_bytes(path, _MAX_BYTES + 1)
    except FileNotFoundError:
        raise UnreachableError(f"there is no script {path}") from None
    except OSError as error:
        raise UnreachableError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > _MAX_BYTES:
        raise InputError(f"{path} is larger than 4 MiB: it cannot be a training script")
    try:
        text = _decoded(content)
    except (UnicodeDecodeError, SyntaxError, LookupError) as error:
        raise InputError(f"{path} is not Python source: {error}") from None
    return _of_notebook(path, text) if path.suffix == _NOTEBOOK else (text, ())


def _decoded(content: bytes) -> str:
    """Text of Python source, by its own declaration (PEP 263)."""
    import io
    import tokenize

    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding).replace("\r\n", "\n")


def _of_notebook(path: Path, text: str) -> tuple[str, tuple[int, ...]]:
    """The code cells as one program; lines that IPython alone understands become comments."""
    try:
        notebook: Any = json_value(text)
        cells = notebook["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{path} is not a notebook: it has no list of cells") from None
    lines: list[str] = []
    starts: list[int] = []
    for source in sources:
        starts.append(len(lines) + 1)
        lines += _without_magics(source)
    return "\n".join(lines) + "\n", tuple(starts)


def _without_magics(source: str) -> list[str]:
    lines = source.split("\n")
    if source.lstrip().startswith("%%"):
        return [f"# {line}" for line in lines]
    if _parses(source):  # a line may begin with % in plain Python too
        return lines
    plain: list[str] = []
    inside = False
    for line in lines:
        # A shell command goes on where its line ends in a backslash.
        plain.append(f"# {line}" if inside else _plain(line))
        inside = line.rstrip().endswith("\\") and (inside or line.lstrip().startswith(("!", "%")))
    return plain


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _plain(line: str) -> str:
    """A magic or shell line as `pass`, indented as it was: a block of nothing else stays a block."""
    stripped = line.lstrip()
    magic = stripped.startswith(("%", "!", "?")) or (stripped.endswith("?") and stripped[:-1].isidentifier())
    return f"{line[: len(line) - len(stripped)]}pass  # {stripped}" if magic else line
