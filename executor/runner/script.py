"""Runs a script as `python SCRIPT ARGS` would: `__main__`, `sys.argv`, its neighbours importable."""

import builtins
import io
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType

from gpu_plan.planner.neighbours import admit

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Executes the file (or a folder or archive with a `__main__.py`) in this process; raises what it raises.

    Unlike `runpy.run_path`, the module stays `sys.modules["__main__"]` afterwards: the script's own atexit functions,
    threads and pickles find it there.
    """
    sys.argv[:] = [path, *arguments]
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory, put there by `-m`
    plain = os.path.isfile(path) and not path.endswith((".zip", ".pyz", ".whl"))
    # A script of this package imports by full names: its folder is nobody's neighbourhood.
    ours = os.path.abspath(path).startswith(_PACKAGE + os.sep)
    admit(os.path.dirname(os.path.realpath(path)) if plain and not ours else None)
    if not plain:
        runpy.run_path(path, run_name="__main__")
        return
    module = ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = SourceFileLoader("__main__", path)
    module.__dict__["__builtins__"] = builtins
    module.__dict__["__cached__"] = None
    sys.modules["__main__"] = module
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)
