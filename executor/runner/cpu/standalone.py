"""`python start_rank.py SCRIPT ARGS...`: a script in a rank that needs more than its launcher gives it.

Goes along with the launch files that `plan export` writes, beside the files that it imports; needs nothing else of it.
"""

import atexit
import importlib
import os
import runpy
import sys
import traceback
from collections.abc import Sequence

_NEEDS = {
    "GPU_PLAN_CPU_RANKS": ("gloo_ranks",),
    "GPU_PLAN_CPU_FLOAT8": ("float8_products",),
    "GPU_PLAN_DEGREES": ("spread_model",),
    "GPU_PLAN_STAGES": ("spread_model", "piped_model"),
}
"""Modules beside this one by the variable that asks for them."""


def main(arguments: Sequence[str]) -> int:
    """Runs the script as `python SCRIPT ARGS...` would; gives the exit code."""
    if not arguments:
        print("usage: start_rank.py SCRIPT [ARGUMENTS...]", file=sys.stderr)
        return 2
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [here, *(entry for entry in sys.path if entry != here)]
    imports = importlib.import_module("post_import").PostImport(_failed)
    imports.install()
    for variable, names in _NEEDS.items():
        for name in names if os.environ.get(variable) else ():
            importlib.import_module(name).install(imports)
    sys.argv[:] = arguments
    # What needs torch is imported with the script's own import of it: last, so that nothing of the script's is hidden.
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    sys.path.append(here)
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        print(leaving.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _failed(module: str, error: Exception) -> None:
    print(f"start_rank.py: {module} is not as expected, and may not run as planned: {error!r}", file=sys.stderr)


def _leave(code: int) -> None:
    """gloo's threads sometimes abort a process that has finished well: it ends before they can."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main(sys.argv[1:]))
