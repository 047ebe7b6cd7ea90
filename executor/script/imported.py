"""Words of the user's own files that a script imports, read from their text (I/O)."""

import ast
import contextlib
import importlib.util
import re
import sys
from pathlib import Path

from gpu_plan.executor.script.read import Script

_MOST, _MOST_FILES = 40, 400
_WORD = re.compile(r"[A-Za-z_]\w+")


def words_imported(script: Script) -> tuple[frozenset[str], bool]:
    """Every word in the modules beside the script that it imports, and in those that they import.

    The second is whether all imported modules were found, here or among what is installed.
    """
    found: set[str] = set()
    waiting, seen, whole = [script.tree], {script.path}, True
    while waiting and len(seen) < _MOST:
        for name in _imported(waiting.pop()):
            paths = _beside(name, script.path.parent)
            whole &= bool(paths) or _is_installed(name.partition(".")[0])
            for path in paths:
                if path in seen:
                    continue
                seen.add(path)
                try:
                    text = path.read_text(encoding="utf-8", errors="replace")
                    waiting.append(ast.parse(text))
                except (OSError, SyntaxError, ValueError):
                    whole = False
                    continue
                found.update(_WORD.findall(text))
    return frozenset(found), whole


def modules_beside(script: Script) -> dict[str, Path]:
    """Files of the modules beside the script that it imports, and that those import, by their path from its folder.

    Of a package that lies there, all that is Python.
    """
    folder = script.path.parent
    found: dict[str, Path] = {}
    waiting = [script.tree]
    while waiting and len(found) < _MOST_FILES:
        for name in _imported(waiting.pop()):
            package = folder / name.partition(".")[0]
            whole = sorted(package.rglob("*.py")) if (package / "__init__.py").is_file() else []
            for path in (*_beside(name, folder), *whole):
                key = path.relative_to(folder).as_posix()
                if key in found or path == script.path:
                    continue
                found[key] = path
                with contextlib.suppress(OSError, SyntaxError, ValueError):
                    waiting.append(ast.parse(path.read_text(encoding="utf-8", errors="replace")))
    return found


def _imported(tree: ast.Module) -> list[str]:
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return names + [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]


def _beside(name: str, folder: Path) -> list[Path]:
    """Files of a module in the script's own folder."""
    path = folder.joinpath(*name.split("."))
    return [one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()]


def _is_installed(name: str) -> bool:
    try:
        return name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
