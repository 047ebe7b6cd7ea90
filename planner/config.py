"""The project's own configuration: GPUs that the user describes (I/O).

Read from `plan.toml` (`[gpus.NAME]`) or the `[tool.plan]` table of `pyproject.toml` (`[tool.plan.gpus.NAME]`) in the
working directory or the nearest directory above it that has one; of both in one directory, `plan.toml` counts.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from planner.errors import InputError, NotBuiltError
from planner.hardware.catalog import load_platforms
from planner.hardware.names import squash
from planner.hardware.user_gpus import parse_user_gpu
from planner.nearest import did_you_mean

KEYS = ("gpus",)
LATER = ("checks",)
"""Tables that later versions bring; refused by name."""
_MAX_BYTES = 2**20
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 ._-]{0,39}")
_OWN = "plan.toml"


def user_gpus(start: Path | None = None) -> dict[str, object]:
    """The raw tables of the user's GPUs by name, checked; `start` is the working directory unless given.

    Raises InputError in one line, file and table named, for a file or table that makes no sense.
    """
    found = _nearest(Path.cwd() if start is None else start.resolve())
    if found is None:
        return {}
    path, table, prefix = found
    for key in table:
        if key in LATER:
            raise NotBuiltError(f"{path}: [{prefix}{key}]")
        if key not in KEYS:
            raise InputError(
                f"{path}: unknown key {prefix}{key[:40]}; known: {', '.join(KEYS)}.{did_you_mean(key[:40], KEYS)}"
            )
    gpus = table.get("gpus", {})
    if not isinstance(gpus, dict):
        raise InputError(f"{path}: {prefix}gpus must hold tables, such as [{prefix}gpus.my-card]")
    try:
        _check(gpus)
    except InputError as error:
        raise InputError(f"{path}: {str(error).replace('tool.plan.', prefix)}") from None
    return gpus


def _check(gpus: Mapping[str, object]) -> None:
    taken = {squash(name): name for name in ("auto", "cpu", *load_platforms())}
    for name, table in gpus.items():
        shown = f"[tool.plan.gpus.{name[:40]!r}]"
        if not _NAME.fullmatch(name) or not squash(name):
            raise InputError(
                f"{shown} is no name that --gpus can read: begin with a letter, then letters, digits, '.', '_' or '-'"
            )
        other = taken.setdefault(squash(name), name)
        if other is not name:
            raise InputError(f"{shown} has the name of {other!r}: choose another")
        parse_user_gpu(name, table)


def _nearest(start: Path) -> tuple[Path, dict[str, object], str] | None:
    """The file that counts, its table, and what stands before the table's keys in that file."""
    for folder in (start, *start.parents):
        own = _read(folder / _OWN)
        if own is not None:
            return folder / _OWN, own, ""
        project = folder / "pyproject.toml"
        tool = (_read(project) or {}).get("tool")
        table = tool.get("plan") if isinstance(tool, dict) else None
        if isinstance(table, dict):
            return project, table, "tool.plan."
        if table is not None:
            raise InputError(f"{project}: tool.plan must be a table, such as [tool.plan.gpus.my-card]")
    return None


def _read(path: Path) -> dict[str, object] | None:
    """A TOML file's content, or None where there is no such file."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise InputError(f"{path} is larger than 1 MiB: it cannot be a configuration")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{path} is not valid TOML: {reason[:120]}") from None
