"""Words of the user's own files that a script imports, read from their text (I/O)."""

import ast
import re
from pathlib import Path

from gpu_plan.executor.script.read import Script

_MOST = 40
_WORD = re.compile(r"[A-Za-z_]\w+")


def words_imported(script: Script) -> frozenset[str]:
    """Every word in the modules beside the script that it imports, and in those that they import."""
    found: set[str] = set()
    waiting, seen = [script.tree], {script.path}
    while waiting and len(seen) < _MOST:
        for path in _beside(waiting.pop(), script.path.parent):
            if path in seen:
                continue
            seen.add(path)
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
                waiting.append(ast.parse(text))
            except (OSError, SyntaxError, ValueError):
                continue
            found.update(_WORD.findall(text))
    return frozenset(found)


def _beside(tree: ast.Module, folder: Path) -> list[Path]:
    """Files of the modules that a tree imports from the script's own folder."""
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    found = []
    for name in names:
        path = folder.joinpath(*name.split("."))
        found += [one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()]
    return found
