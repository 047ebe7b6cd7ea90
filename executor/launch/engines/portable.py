"""Launch files that stand on their own: copied to another folder or machine they run, without this package.

The command finds its files beside itself and the script where it stood to them; `SCRIPT` names another. What ranks need
of ours goes along as files: CPU ranks under a sharded strategy, and models that are spread over ranks.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_plan.executor import runner
from gpu_plan.executor.launch.render import header, shell_text
from gpu_plan.executor.launch.target import START_FILE, Target

HERE = "@HERE@"
"""In a file that only the command's own start can complete: the folder that it stands in."""
_SOURCES: Mapping[str, str] = {
    START_FILE: "cpu/standalone.py",
    "post_import.py": "imports.py",
    "gloo_ranks.py": "cpu/ranks.py",
    "float8_products.py": "cpu/float8.py",
}
"""Files of the in-rank runner that need nothing else of it, by the name under which they go along."""
_SPREAD: Mapping[str, str] = {
    "spread_model.py": "parallel/spread.py",
    "spread_degrees.py": "parallel/degrees.py",
    "spread_models.py": "parallel/models.py",
    "spread_meshes.py": "parallel/meshes.py",
    "spread_sums.py": "parallel/sums.py",
    "spread_samples.py": "parallel/samples.py",
    "spread_checkpoints.py": "parallel/checkpoints.py",
}
"""Those for models that are spread over ranks."""


def command_file(
    target: Target, environment: Mapping[str, str], command: Sequence[str], *, completed: Sequence[str] = ()
) -> str:
    """`command.sh`: as it is launched where ranks are observed; else one that runs wherever its folder stands.

    `completed`: files of the folder in which `HERE` is replaced before the start, under the same name behind a dot.
    """
    if target.observed:
        return shell_text(environment, command, target.made_by, logs=target.logs if target.placed else None)
    script = len(command) - len(target.arguments) - 1
    beside = os.path.relpath(os.path.abspath(target.script), target.folder)
    lines = [
        "#!/bin/sh",
        header(target.made_by) + "set -e",
        'here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)',
        "script=${SCRIPT:-}",
        f'[ -n "$script" ] || script="$here"/{shlex.quote(beside)}',
        'case "$script" in -*) script="./$script" ;; esac',
        '[ -e "$script" ] || { echo "$0: there is no $script: SCRIPT=/path/to/script.py $0 names it" >&2; exit 2; }',
        *(f'sed "s|{HERE}|$here|g" "$here"/{name} > "$here"/.{name}' for name in completed),
        *(f"export {name}={_word(value, target.folder)}" for name, value in sorted(environment.items())),
    ]
    words = [_word(word, target.folder) for word in command]
    words[script] = '"$script"'
    return "\n".join([*lines, f'exec {" ".join(words)} "$@"']) + "\n"


def start_files(target: Target) -> dict[str, str]:
    """What a rank starts with, as files that import each other by their names in one folder."""
    root = Path(runner.__file__).parent
    sources = {**_SOURCES, **_SPREAD} if target.spreads_model else _SOURCES
    return {name: _beside((root / source).read_text(encoding="utf-8")) for name, source in sources.items()}


def _beside(text: str) -> str:
    """With the runner's modules as modules of the folder."""
    for name, source in (*_SOURCES.items(), *_SPREAD.items()):
        dotted, stem = source.removesuffix(".py").replace("/", "."), name.removesuffix(".py")
        folder, _, last = f"gpu_plan.executor.runner.{dotted}".rpartition(".")
        text = text.replace(f"from {folder}.{last} import", f"from {stem} import")
    return text


def _word(text: str, folder: Path) -> str:
    """A word for the shell; a path in `folder` begins where the command stands."""
    rest = text.removeprefix(str(folder))
    inside = rest != text and (not rest or rest.startswith("/"))
    return '"$here"' + (shlex.quote(rest) if rest else "") if inside else shlex.quote(text)
