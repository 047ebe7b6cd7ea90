"""Runs a script as `python SCRIPT` does, or as `python -m PACKAGE.SCRIPT` where its text imports relatively.

A loop that catches every exception and prints it ends without a word of what ended it: handlers of the script that
catch all keep the exception here before their own first line runs.
"""

import ast
import importlib.util
import runpy
import sys
from pathlib import Path
from types import CodeType
from typing import Any

from gpu_plan.planner.capture.script.advice import Kernel

_KEEP = "__kept_by_plan__"
_KERNEL = "get_ipython"
"""What a script exported from a notebook calls for the notebook's own lines."""
_ALL = ("Exception", "BaseException")
_MOST = 8
"""Exceptions that are kept: the last ones."""


class Program:
    """One script."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self.swallowed: list[BaseException] = []
        """What handlers of the script caught that catch everything, in order."""

    def run(self) -> str | None:
        """Runs it to its end; the name under which Python knows it, where that is a module of a package."""
        tree = _parsed(self._script)
        name = None if tree is None else _module(self._script, tree)
        code = None if tree is None else self._watched(tree)
        given: dict[str, Any] = {_KEEP: self._keep}
        if tree is not None and _calls(tree, _KERNEL):
            given[_KERNEL] = Kernel
        if code is None:
            runpy.run_path(str(self._script), run_name="__main__")
        elif name is None:
            _run(code, given, script=str(self._script))
        else:
            root = str(_root(self._script))
            sys.path[:] = [root, *(entry for entry in sys.path if entry not in (root, str(self._script.parent)))]
            spec = importlib.util.find_spec(name)
            _run(code, given, script=str(self._script), spec=spec, package=name.rpartition(".")[0])
        return name

    def _keep(self) -> None:
        problem = sys.exception()
        if problem is not None:
            self.swallowed = [*self.swallowed[1 - _MOST :], problem]

    def _watched(self, tree: ast.Module) -> CodeType | None:
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not isinstance(node.body[-1], ast.Raise):
                call = ast.parse(f"{_KEEP}()").body[0]
                node.body.insert(0, ast.copy_location(call, node.body[0]))
        ast.fix_missing_locations(tree)
        try:
            return compile(tree, str(self._script), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError):
            return None


def _run(code: CodeType, given: dict[str, Any], script: str, spec: Any = None, package: str | None = None) -> None:
    """As runpy does: `__main__` is the script, and argv[0] its path (runpy.py: _run_module_code)."""
    runpy._run_module_code(  # type: ignore[attr-defined]
        code, given, "__main__", mod_spec=spec, pkg_name=package, script_name=script
    )


def _parsed(script: Path) -> ast.Module | None:
    """Its tree; None where Python itself has to say what is wrong with it."""
    try:
        return ast.parse(script.read_bytes(), str(script))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _calls(tree: ast.Module, name: str) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == name for function in calls)


def _catches_all(handler: ast.ExceptHandler) -> bool:
    kind = handler.type
    return kind is None or (isinstance(kind, ast.Name) and kind.id in _ALL)


def _module(script: Path, tree: ast.Module) -> str | None:
    """`package.script` where it imports relatively and lies in a package, which as a script Python refuses."""
    relative = any(isinstance(node, ast.ImportFrom) and node.level for node in tree.body)
    if not relative or not (script.parent / "__init__.py").is_file():
        return None
    return ".".join((*script.parent.relative_to(_root(script)).parts, script.stem))


def _root(script: Path) -> Path:
    """The folder above the outermost package."""
    folder = script.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder
