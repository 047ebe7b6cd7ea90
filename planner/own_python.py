"""How this package starts Python anew: its own modules, whatever lies in the working directory. Pure."""

import json
import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

from gpu_plan.planner.neighbours import GIVEN, entries, give_back, standard_library

ROOT = str(Path(__file__).parents[2])
"""The folder from which this package was imported."""


def own_interpreter() -> str:
    """The Python that runs this."""
    return sys.executable


def own_command(module: str, *options: str) -> list[str]:
    """Words that start one of this package's modules, or a launcher's; `options` are the interpreter's.

    `-P` keeps the working directory off `sys.path`: a `torch.py` or a `planner/` that lies there is somebody else's.
    """
    return [sys.executable, "-P", *options, "-m", module]


def own_environment(
    given: Mapping[str, str], *, directory: Path | None = None, script: Path | None = None
) -> dict[str, str]:
    """`given`, in which this package is importable as it is here, and no user's folder stands before it.

    For a process that starts in `directory` (this one's where None) and may run `script`. Neither the working directory
    nor the script's folder is left in PYTHONPATH, and PYTHONSAFEPATH keeps both from being added by what the child
    starts with `-m`. What stood there before goes along, for the process that runs the script in the end: see
    `neighbours.admit`.
    """
    environment = dict(given)
    give_back(environment)  # of a parent that was itself started so
    before = {name: environment.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH")}
    here = os.path.abspath(directory or os.getcwd())
    apart = {os.path.realpath(here), *([os.path.realpath(script.parent)] if script else [])}
    named = entries(before["PYTHONPATH"] or "", here)
    kept = [entry for entry in named if os.path.realpath(entry) not in apart]
    ours = {"PYTHONPATH": os.pathsep.join([*standard_library(), *kept, *_installed()]), "PYTHONSAFEPATH": "1"}
    changes = {name: (before[name], value) for name, value in ours.items()}
    return {**environment, **ours, GIVEN: json.dumps(changes)}


def _installed() -> list[str]:
    """Where this package, and in what order everything else, is found here.

    Behind it, and so behind the standard library too, stands what a launcher appends: under DeepSpeed, Accelerate adds
    the working directory (utils/launch.py: prepare_deepspeed_cmd_env).
    """
    folders = (*site.getsitepackages(), site.getusersitepackages())
    present = [entry for entry in sys.path if entry in folders]
    return present if ROOT in present else [ROOT, *present]
