"""What the user and the site tell an engine: `--set slurm.KEY=VALUE`, short options, `[tool.plan.engines.slurm]`.

The command line wins over the configuration. Three keys are every engine's: `setup` (a line of shell, or a list of
them), `env.NAME` (a variable for every rank; in the configuration a table `env`) and `python`.
"""

import re
from collections.abc import Iterable, Mapping

from gpu_plan.executor.engines.engine import Engine, Settings
from gpu_plan.planner.errors import InputError, PlanError, UsageError
from gpu_plan.planner.nearest import did_you_mean

COMMON: Mapping[str, str] = {
    "setup": "lines of shell on every node before the launch: module load, conda activate, . venv/bin/activate",
    "env.NAME": "a variable for every rank, such as env.NCCL_SOCKET_IFNAME=ib0",
}
"""Settings of every engine."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f]")
_MOST = 2000


def split_off(words: Iterable[str], names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Of `--set` words, those for an engine of one of `names`, and the others."""
    heads = tuple(f"{name}." for name in names)
    listed = list(words)
    ours = [word for word in listed if word.startswith(heads)]
    return ours, [word for word in listed if not word.startswith(heads)]


def read_settings(
    engine: Engine, words: Iterable[str] = (), options: Mapping[str, str | None] | None = None,
    table: Mapping[str, object] | None = None, where: str = "",
) -> Settings:  # fmt: skip
    """What counts, checked. `words`: `slurm.KEY=VALUE`, as `--set` has them. `options`: short options by key. `table`:
    what the configuration file `where` holds for the engine.

    UsageError for what the command line says wrongly, InputError for the configuration; the nearest key is offered.
    """
    values: dict[str, str] = {}
    setup: list[str] = []
    environment: dict[str, str] = {}
    if table:
        try:
            _add(engine, _flat(table), values, setup, environment)
        except PlanError as error:
            raise InputError(f"{where}: [engines.{engine.name}]: {error}") from None
    own: dict[str, list[str]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word}: write {word}=VALUE")
        own.setdefault(key.partition(".")[2], []).append(value)
    given: list[str] = []
    _add(engine, own, values, given, environment)
    for key, option in (options or {}).items():
        if option is not None:
            if key not in engine.keys:
                raise UsageError(f"--{key} is no setting of {engine.title}: {_known(engine)}")
            if key in own:
                raise UsageError(f"--{key} and --set {engine.name}.{key} say the same: keep one")
            _add(engine, {key: [option]}, values, given, environment)
    return Settings(values=values, setup=tuple(given or setup), environment=environment)


def _flat(table: Mapping[str, object]) -> dict[str, list[str]]:
    """A TOML table as words by key; a list gives several."""
    found: dict[str, list[str]] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": words for inner, words in _flat(value).items()}
        elif isinstance(value, bool):
            found[key] = [str(value).lower()]
        elif isinstance(value, (str, int, float)):
            found[key] = [str(value)]
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            found[key] = list(value)
        else:
            raise InputError(f"{key} must be a string, a number, true or false, or a list of strings")
    return found


def _add(
    engine: Engine,
    given: Mapping[str, list[str]],
    values: dict[str, str],
    setup: list[str],
    environment: dict[str, str],
) -> None:
    for written, words in given.items():
        for word in words:
            _check_text(written, word)
        key = written if written.startswith("env.") else written.replace("_", "-")
        if key == "setup":
            setup += words
        elif key.startswith("env."):
            name = key.removeprefix("env.")
            if not _VARIABLE.fullmatch(name):
                raise UsageError(f"{name!r} is not the name of a variable")
            environment[name] = words[-1]
        elif key not in engine.keys:
            raise UsageError(f"{engine.name}.{written} is no setting of {engine.title}: {_known(engine, key)}")
        elif len(words) > 1:
            raise UsageError(f"{engine.name}.{key} is given {len(words)} times: keep one")
        elif key in engine.flags and words[0] not in ("true", "false"):
            raise UsageError(f"{engine.name}.{key}={words[0]}: write true or false")
        else:
            values[key] = words[0]


def _check_text(key: str, value: str) -> None:
    if _UNSEEN.search(value) or len(value) > _MOST:
        raise UsageError(f"{key}: {value[:40]!r} has a line break or another character that cannot be seen")
    if not value.strip():
        raise UsageError(f"{key} is empty")


def _known(engine: Engine, name: str = "") -> str:
    keys = (*engine.keys, *COMMON)
    return f"it knows {', '.join(keys)}.{did_you_mean(name, keys, limit=1) if name else ''}"
