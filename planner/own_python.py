"""How this package starts Python anew for itself: its own modules, whatever lies in the working directory. Pure."""

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
"""The folder from which this package was imported."""


def own_command(module: str, *options: str) -> list[str]:
    """Words that start one of this package's modules; `options` are the interpreter's.

    `-P` keeps the working directory off `sys.path`: a `torch.py` or a `planner/` that lies there is somebody else's.
    """
    return [sys.executable, "-P", *options, "-m", module]


def own_environment(given: Mapping[str, str]) -> dict[str, str]:
    """`given`, in which this package is importable as it is here, and no entry of PYTHONPATH means wherever one stands.

    An empty or relative entry would put the working directory before the standard library.
    """
    entries = [entry for entry in given.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    if ROOT not in (*site.getsitepackages(), site.getusersitepackages(), *entries):
        entries.insert(0, ROOT)
    rest = {name: value for name, value in given.items() if name != "PYTHONPATH"}
    return {**rest, "PYTHONPATH": os.pathsep.join(entries)} if entries else rest
