"""Where a user's own modules are found: behind the standard library, and never in place of what this package needs.

`python train.py` puts the script's folder before everything: a `json.py` or a `yaml.py` that lies there, or in the
working directory, would be imported by us too. Here that folder stands between the standard library and what is
installed, so that neighbours still come before packages of their name, save those that this package itself imports.

Standard library only: ranks and the capturing child import it before the script.
"""

import json
import os
import sys
from collections.abc import Iterable, MutableMapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

GIVEN = "GPU_PLAN_PYTHON"
"""In a child's environment: JSON of the variables that were changed for its start, `{name: [before, set]}`, where a
variable that was not there has null. See `give_back`."""

NEEDED = frozenset(
    {
        "accelerate", "bitsandbytes", "deepspeed", "gpu_plan", "huggingface_hub", "kubeflow", "kubeflow_trainer_api",
        "matplotlib", "numpy", "pandas", "peft", "psutil", "ray", "rich", "safetensors", "scipy", "textual",
        "tokenizers", "torch", "torchao", "transformers", "yaml",
    }
)  # fmt: skip
"""Top-level modules that this package imports: taken from where they are installed, if they are."""

_ZIP = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
_LIBRARY = os.path.dirname(os.__file__)


def admit(folder: str | None) -> None:
    """Makes a script's neighbours importable in this process, as `python SCRIPT` would, and gives its variables back.

    `folder`: the script's; None for a script that has no neighbours of its own. Behind it stands what the user's
    PYTHONPATH names. As python does, a user's PYTHONSAFEPATH keeps the folder out.
    """
    give_back(os.environ)
    own = [] if folder is None or os.environ.get("PYTHONSAFEPATH") else [folder]
    stand_first([*own, *entries(os.environ.get("PYTHONPATH", ""), os.getcwd())])
    keep_out([*own, os.getcwd()])


def give_back(environment: MutableMapping[str, str]) -> None:
    """Puts the variables of `GIVEN` back as they were; what a launcher has added at their end since stays."""
    for name, (before, ours) in _changed(environment.pop(GIVEN, "")).items():
        now = environment.get(name)
        if now is None or not f"{now}{os.pathsep}".startswith(f"{ours}{os.pathsep}"):
            continue  # somebody else's by now
        added = now.removeprefix(ours)
        if before is None and not added:
            del environment[name]
        else:
            environment[name] = f"{before}{added}" if before is not None else added.removeprefix(os.pathsep)


def _changed(text: str) -> dict[str, tuple[str | None, str]]:
    """What `GIVEN` says; nothing where it is not ours."""
    try:
        return {str(name): (before, str(ours)) for name, (before, ours) in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def entries(variable: str, directory: str) -> list[str]:
    """The folders of a PYTHONPATH, absolute: in python, an empty or relative entry begins at the working directory."""
    words = variable.split(os.pathsep) if variable else []
    return [os.path.normpath(os.path.join(directory, word)) for word in words]


def standard_library() -> list[str]:
    """The entries of `sys.path` that hold the standard library, in their order."""
    return [entry for entry in sys.path if _is_standard(entry)]


def _is_standard(entry: str) -> bool:
    return entry == _LIBRARY or os.path.basename(entry) in (_ZIP, "lib-dynload")


def stand_first(folders: Iterable[str]) -> None:
    """Puts `folders` right behind the standard library in `sys.path`, before all other entries."""
    sys.path[:] = dict.fromkeys([*standard_library(), *folders, *sys.path])


def keep_out(folders: Iterable[str]) -> None:
    """From now on, what this package needs is not taken from `folders` where it is installed elsewhere."""
    guard = next((finder for finder in sys.meta_path if isinstance(finder, _Guard)), None)
    if guard is None:
        guard = _Guard()
        # Right before the finder of `sys.path`: who watches imports stands further ahead and still sees them all.
        at = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(at, guard)
    guard.folders |= {os.path.realpath(folder) for folder in folders}


class _Guard:
    """Finds what this package needs anywhere but in the user's own folders; leaves all else to the finders behind."""

    def __init__(self) -> None:
        self.folders: frozenset[str] = frozenset()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in NEEDED:
            return None
        installed = [entry for entry in sys.path if os.path.realpath(entry) not in self.folders]
        found = PathFinder.find_spec(name, installed, target)
        if found is not None and found.origin is not None:
            return found
        # An editable install may have a finder of its own.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = None if finder is PathFinder else finder.find_spec(name, None, target)
            if spec is not None and spec.origin is not None:
                return spec
        return None
