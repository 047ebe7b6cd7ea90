"""The project's own configuration: a job's options, and GPUs that the user describes (I/O).

Read from `plan.toml` or the `[tool.plan]` table of `pyproject.toml` in a directory or the nearest one above it that
has one; of both in one directory, `plan.toml` counts. Keys are the options' own names (`seq-len = 2048`), `model` for
MODEL; `[set]` holds what `--set` takes. `gpus` is the option where it is a string; as a table it describes GPUs
(`[gpus.NAME]`), and its key `use` is then the option. `[checks.NAME]` are the jobs of `plan check`: see
gpu_plan.planner.regression.jobs. `[engines.NAME]` holds what a site always tells an engine, such as SLURM.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.as_toml import MAX_BYTES, toml_table
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.foreign.limits import MalformedError
from gpu_plan.planner.hardware.machines import load_platforms
from gpu_plan.planner.hardware.names import squash
from gpu_plan.planner.hardware.user_gpus import parse_user_gpu
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.plain.values import dataclass

_USE = "use"
_CHECKS, _ENGINES = "checks", "engines"
_MAX_BYTES = 2**20
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 ._-]{0,39}")
_OWN = "plan.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Options of a job that a configuration file gives."""

    path: Path
    """The file."""
    values: Mapping[str, object]
    """By key, as TOML holds them: `gpus` a string, `set` a flat table."""


def job_options(start: Path) -> JobOptions | None:
    """What the nearest file upward from the directory `start` says of the job; None where there is none.

    Raises InputError in one line, file and key named, for one that makes no sense.
    """
    found = _nearest(start.resolve())
    if found is None:
        return None
    path, table, prefix = found
    _check_keys(path, table, prefix)
    values = {key: value for key, value in table.items() if key not in (_CHECKS, _ENGINES)}
    gpus = values.get("gpus")
    if isinstance(gpus, dict) and isinstance(gpus.get(_USE), str):
        values["gpus"] = gpus[_USE]
    elif isinstance(gpus, dict):
        del values["gpus"]
    for key, value in values.items():
        values[key] = flat(value) if key == "set" and isinstance(value, dict) else value
        if not _is_plain(values[key]) and key != "set":
            raise InputError(f"{path}: {prefix}{key} must be a string, a number, true or false, or a list of strings")
    return JobOptions(path=path, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTables:
    """The jobs of `plan check` as a configuration file has them."""

    path: Path
    """The file; its folder is the project's root."""
    prefix: str
    """What stands before `checks` in the file's keys: `tool.plan.` or nothing."""
    tables: Mapping[str, object]
    """By the job's name, unchecked."""


def check_tables(start: Path) -> CheckTables | None:
    """The jobs that the nearest file upward from the directory `start` names; None where there is no such file.

    Raises InputError in one line, file and key named, where they are no tables.
    """
    found = _nearest(start.resolve())
    if found is None:
        return None
    path, table, prefix = found
    _check_keys(path, table, prefix)
    checks = table.get(_CHECKS, {})
    if not isinstance(checks, dict):
        raise InputError(f"{path}: {prefix}{_CHECKS} must hold tables, such as [{prefix}{_CHECKS}.train]")
    return CheckTables(path=path, prefix=prefix, tables=checks)


def engine_table(start: Path, engine: str) -> tuple[Mapping[str, object], str]:
    """What the nearest file upward from the directory `start` holds in `[engines.NAME]`, unchecked, and the file.

    Nothing where there is none. InputError in one line, file and key named, where it is no table.
    """
    found = _nearest(start.resolve())
    if found is None:
        return {}, ""
    path, table, prefix = found
    _check_keys(path, table, prefix)
    engines = table.get(_ENGINES, {})
    own = engines.get(engine, {}) if isinstance(engines, dict) else None
    if not isinstance(own, dict):
        raise InputError(f"{path}: {prefix}{_ENGINES} must hold tables, such as [{prefix}{_ENGINES}.slurm]")
    return own, str(path)


def user_gpus(start: Path | None = None) -> dict[str, object]:
    """The raw tables of the user's GPUs by name, checked; `start` is the working directory unless given.

    Raises InputError in one line, file and table named, for a file or table that makes no sense.
    """
    found = _nearest(Path.cwd() if start is None else start.resolve())
    if found is None:
        return {}
    path, table, prefix = found
    _check_keys(path, table, prefix)
    gpus = table.get("gpus", {})
    if isinstance(gpus, str):
        return {}
    if not isinstance(gpus, dict):
        raise InputError(
            f"{path}: {prefix}gpus must be a string such as '8xH100', or hold tables, such as [{prefix}gpus.my-card]"
        )
    described = {name: entry for name, entry in gpus.items() if name != _USE or isinstance(entry, dict)}
    try:
        _check(described)
    except InputError as error:
        raise InputError(f"{path}: {str(error).replace('tool.plan.', prefix)}") from None
    return described


def _check_keys(path: Path, table: Mapping[str, object], prefix: str) -> None:
    from gpu_plan.planner.options.parser import job_option_names

    known = ("model", "gpus", "set", _CHECKS, _ENGINES, *job_option_names())
    for key in table:
        if key not in known:
            hint = did_you_mean(key[:40], known, limit=1)
            raise InputError(
                f"{path}: unknown key {prefix}{key[:40]}; known: options of plan by their names, such as seq-len.{hint}"
            )


def flat(table: Mapping[str, object], before: str = "") -> dict[str, object]:
    """`{"zero": {"overlap_comm": true}}` as `{"zero.overlap_comm": true}`: TOML reads dotted keys as tables."""
    found: dict[str, object] = {}
    for key, value in table.items():
        inner = flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
        found.update(inner)
    return found


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, (str, int, float))


def _check(gpus: Mapping[str, object]) -> None:
    taken = {squash(name): name for name in ("auto", "cpu", *load_platforms())}
    for name, table in gpus.items():
        shown = f"[tool.plan.gpus.{name[:40]!r}]"
        if not _NAME.fullmatch(name) or not squash(name):
            raise InputError(
                f"{shown} is not a name that --gpus can read: a letter, then letters, digits, '.', '_' or '-'"
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
        content = read_bytes(path, MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return toml_table(content)
    except MalformedError as error:
        raise InputError(f"{path} {error}") from None
