"""Jobs of `plan check` as a configuration file has them: `[tool.plan.checks.NAME]` (reads that file again for lines).

    [tool.plan.checks.train]
    model = "train.py"                    # a script with `args`, a factory, a folder, a config.json or a hub id
    args = ["--config", "small.yaml"]
    gpus = "8xA100-40GB"
    budget = ["fits", "peak <= 36 GiB"]
    warn = "1%"
    fail = "5%, 512MiB"

All other keys are options of the main job by their own names.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.as_toml import MAX_BYTES
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.options.config import CheckTables, flat
from gpu_plan.planner.options.given.named import named
from gpu_plan.planner.options.parser import job_option_names
from gpu_plan.planner.regression.limits import FAIL, WARN, Budget, Threshold, parse_budget, parse_threshold
from gpu_plan.planner.regression.places import toml_line

_OWN = ("model", "gpus", "set", "args", "budget", "warn", "fail")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_NOT_OPTIONS = ("hosts", "max-restarts")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJob:
    """One job, its words checked; whether its model exists is seen when it is computed."""

    name: str
    path: Path
    """The configuration file."""
    line: int | None
    """Of the job's table."""
    model: str
    gpus: str
    options: Mapping[str, object]
    """Options of the main job by name, as TOML holds them."""
    args: tuple[str, ...] = ()
    """Of the script."""
    budgets: tuple[Budget, ...] = ()
    warn: Threshold = WARN
    fail: Threshold = FAIL
    lines: Mapping[str, int]
    """Line of each key that has one of its own."""

    @property
    def place(self) -> str:
        """`pyproject.toml:12: [checks.train]`, before what is wrong with it."""
        return where(self.path, self.line, self.name)

    @property
    def runs_code(self) -> bool:
        """Whether the project's own code is the model: a script, or a factory."""
        return self.model.endswith(".py") or (":" in self.model and "/" not in self.model)


def where(path: Path, line: int | None, name: str) -> str:
    """`pyproject.toml:12: [checks.train]`."""
    return f"{path.name}{'' if line is None else f':{line}'}: [checks.{name}]"


def read_jobs(tables: CheckTables, names: Sequence[str] = ()) -> tuple[CheckJob, ...]:
    """The jobs of these names, all of them where none is named. InputError in one line with file and line."""
    text = read_bytes(tables.path, MAX_BYTES).decode("utf-8")
    for name in names:
        if name not in tables.tables:
            hint = did_you_mean(name[:40], tuple(tables.tables), limit=1)
            known = ", ".join(tables.tables) or "none"
            raise InputError(f"{tables.path.name} has no job [checks.{name[:40]}]; it has {known}.{hint}")
    return tuple(_job(tables, text, name, table) for name, table in tables.tables.items() if not names or name in names)


def _job(tables: CheckTables, text: str, name: str, table: object) -> CheckJob:
    header = [*tables.prefix.split(".")[:-1], "checks", name]
    line = toml_line(text, header)
    try:
        if not _NAME.fullmatch(name):
            raise InputError("is not a name for a file: use letters, digits, '.', '_' and '-'")
        if not isinstance(table, dict):
            raise InputError("must be a table of options")
        lines = {key: found for key in table if (found := toml_line(text, header, key)) is not None and found != line}
        return _checked(tables, name, line, table, lines)
    except InputError as problem:
        raise InputError(f"{where(tables.path, line, name)} {problem}") from None


def _checked(
    tables: CheckTables, name: str, line: int | None, table: Mapping[str, object], lines: Mapping[str, int]
) -> CheckJob:
    _check_keys(table)
    values = {key: _value(key, value) for key, value in table.items()}
    model = values.get("model")
    if not isinstance(model, str):
        raise InputError("names no model: a script, package.module:factory, a folder, a config.json or a hub id")
    args = values.get("args", [])
    if not isinstance(args, list) or (args and not model.endswith(".py")):
        raise InputError('args must be a list of strings, of a training script: args = ["--config", "small.yaml"]')
    budgets = tuple(map(parse_budget, _listed(values.get("budget", []))))
    gpus = values.get("gpus") or next((budget.gpus for budget in budgets if budget.gpus), None)
    if not isinstance(gpus, str):
        raise InputError('names no GPUs: gpus = "8xA100-40GB", or budget = "fits 8xA100-40GB"')
    options = {key: value for key, value in values.items() if key not in _OWN or key == "set"}
    named({**options, "model": model, "gpus": gpus})  # refused here, with the table's line
    return CheckJob(
        name=name,
        path=tables.path,
        line=line,
        model=model,
        gpus=gpus,
        options=options,
        args=tuple(args),
        budgets=budgets,
        warn=parse_threshold(str(values["warn"])) if "warn" in values else WARN,
        fail=parse_threshold(str(values["fail"])) if "fail" in values else FAIL,
        lines=lines,
    )


def _check_keys(table: Mapping[str, object]) -> None:
    known = [*_OWN, *(name for name in job_option_names() if name not in _NOT_OPTIONS and name != "pin")]
    for key in table:
        if key not in known:
            hint = did_you_mean(key[:40], known, limit=1)
            raise InputError(f"has the unknown key {key[:40]!r}; known: options of plan, and {', '.join(_OWN)}.{hint}")


def _value(key: str, value: object) -> object:
    if key == "set" and isinstance(value, dict):
        return flat(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    if isinstance(value, (str, int, float)):
        return value
    raise InputError(f"{key} must be a string, a number, true or false, or a list of strings")


def _listed(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]
