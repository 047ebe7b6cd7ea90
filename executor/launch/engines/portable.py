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
    START_FILE: "executor/runner/cpu/standalone.py",
    "post_import.py": "executor/runner/imports.py",
    "gloo_ranks.py": "executor/runner/cpu/ranks.py",
    "float8_products.py": "executor/runner/cpu/float8.py",
}
"""Files of this package that need nothing else of it, by the name under which they go along."""
_SPREAD: Mapping[str, str] = {
    f"spread_{new}.py": f"executor/runner/parallel/{old}.py"
    for new, old in {
        "model": "spread",
        "degrees": "degrees",
        "making": "making",
        "models": "models",
        "clipping": "clipping",
        "meshes": "meshes",
        "sums": "sums",
        "samples": "samples",
        "checkpoints": "checkpoints",
    }.items()
}
"""Those for models that are spread over ranks."""
_STAGES: Mapping[str, str] = {
    **{
        f"piped_{new}.py": f"executor/runner/parallel/piped/{old}.py"
        for new, old in {
            "model": "install",
            "layout": "layout",
            "models": "models",
            "run": "run",
            "spreading": "spreading",
            "evaluate": "evaluate",
            "gradients": "gradients",
            "weights": "weights",
            "norms": "norms",
            "loaders": "loaders",
        }.items()
    },
    "stage_cuts.py": "planner/pipeline/stages.py",
    "stage_kinds.py": "planner/pipeline/classes.py",
    "stage_classes.py": "planner/trace/parallel/stages.py",
    "stage_errors.py": "planner/trace/parallel/errors.py",
    "plan_errors.py": "planner/errors.py",
    "visible_text.py": "planner/visible.py",
}
"""Those for models that are cut into stages, beside the ones above."""


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
    root = Path(runner.__file__).parents[2]
    sources = {**_SOURCES, **(_SPREAD if target.joins_ranks else {}), **(_STAGES if target.layout is not None else {})}
    return {name: _beside((root / source).read_text(encoding="utf-8")) for name, source in sources.items()}


def _beside(text: str) -> str:
    """With the modules of this package as modules of the folder."""
    for name, source in (*_SOURCES.items(), *_SPREAD.items(), *_STAGES.items()):
        dotted, stem = source.removesuffix(".py").replace("/", "."), name.removesuffix(".py")
        text = text.replace(f"from gpu_plan.{dotted} import", f"from {stem} import")
    return text


def _word(text: str, folder: Path) -> str:
    """A word for the shell; a path in `folder` begins where the command stands."""
    rest = text.removeprefix(str(folder))
    inside = rest != text and (not rest or rest.startswith("/"))
    return '"$here"' + (shlex.quote(rest) if rest else "") if inside else shlex.quote(text)
