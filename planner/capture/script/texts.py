"""The text of a script and of the modules of its project that it imports, read and not run (I/O)."""

import ast
import sys
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_MOST = 64
"""Modules that are read."""
_LARGEST = 1 << 20
NO_PLACE = ("site-packages", "dist-packages")
"""Folders below which nothing is the user's own."""


@cache
def texts(script: Path) -> tuple[str, ...]:
    """The script's text first, then those of its own modules, as far as they are found beside it and on sys.path."""
    waiting, seen = deque([script]), {script}
    found: list[str] = []
    while waiting and len(found) < _MOST:
        path, text = waiting.popleft(), ""
        try:
            text = path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size < _LARGEST else ""
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            tree = None
        found.append("" if tree is None and path != script else text)
        for name, folder in () if tree is None else _imported(tree, path.parent):
            for module in _files(name, script.parent, folder):
                if module not in seen:
                    seen.add(module)
                    waiting.append(module)
    return tuple(found)


def _imported(tree: ast.AST, folder: Path) -> Iterator[tuple[str, Path | None]]:
    """Names that are imported, with the folder from which a relative one counts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder if node.level else None
            for _ in range(node.level - 1):
                base = base.parent if base is not None else None
            yield node.module or "", base
            yield from (
                (f"{node.module}.{alias.name}" if node.module else alias.name, base) for alias in node.names[:32]
            )


def _files(name: str, beside: Path, folder: Path | None) -> Iterator[Path]:
    """Files of the project that `name` may be."""
    roots = [folder] if folder is not None else [beside, *map(Path, sys.path)]
    for root in roots:
        if any(part in root.parts for part in NO_PLACE) or root.is_relative_to(sys.base_prefix):
            continue
        stem = root.joinpath(*filter(None, name.split(".")))
        for path in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py"):
            if name and path.is_file():
                yield path
                return
