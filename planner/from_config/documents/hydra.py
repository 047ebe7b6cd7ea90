"""What stands beneath a command's overrides: the configuration that Hydra composes them with, where its file is there.

hydra-core 1.3 hydra/main.py (config_path is seen from the file of the function that it decorates, --config-path from
the working directory), omegaconf (`${other.key}`).
"""

import re
from collections.abc import Mapping, Sequence

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.from_config.reading import Fetch

_NAMES = ("--config-name", "-cn")
_PATHS = ("--config-path", "-cp")
_USUAL_NAME = "ppo_trainer"
_VERLS = "verl/trainer/config"
"""Where recipes look for it (hydra.searchpath)."""
_HERE = re.compile(r"^(\./|\$\(pwd\)/|\$\{?PWD\}?/)")
"""The folder that the command is started in."""


def beneath(module: str, words: Sequence[str], fetch: Fetch | None) -> Mapping[str, object] | None:
    """Keys with dots of the file that a command's module reads; None where it is not there.

    Of verl's own modules that is ppo_trainer.yaml beside them, of a recipe's main_dapo dapo_trainer.yaml, unless the
    command names another one. What that takes in of ppo_trainer.yaml stands beneath it.
    """
    if fetch is None:
        return None
    folder = module.rpartition("/")[0] if module.endswith(".py") else "/".join(module.split(".")[:-1])
    path = _HERE.sub("", _said(words, _PATHS) or "config").strip("/")
    named = _said(words, _NAMES)
    for name in (named,) if named else (*_own(module), _USUAL_NAME):
        found = _first(fetch, f"{path}/{name}.yaml", f"{folder}/{path}/{name}.yaml")
        if found is None:
            continue
        taken = found.get("defaults")
        if name != _USUAL_NAME and isinstance(taken, list) and _USUAL_NAME in taken:
            usual = _first(fetch, *(f"{place}/{_USUAL_NAME}.yaml" for place in (f"{folder}/{path}", _VERLS)))
            return {**flat(usual or {}), **flat(found)}
        return flat(found)
    return None


def _own(module: str) -> tuple[str, ...]:
    """What verl's recipes call the file of their main (recipe/dapo/main_dapo.py: config_name="dapo_trainer")."""
    found = re.search(r"(?:^|[./])main_(\w+?)(?:\.py)?$", module)
    return () if found is None else (f"{found[1]}_trainer",)


def _first(fetch: Fetch, *paths: str) -> Mapping[str, object] | None:
    """The first of the files that is there."""
    for path in paths:
        try:
            return fetch(path.lstrip("/"), "--config-name")
        except PlanError:
            continue
    return None


def _said(words: Sequence[str], names: Sequence[str]) -> str | None:
    for at, word in enumerate(words):
        key, given, value = word.partition("=")
        if key in names:
            value = value if given else words[at + 1] if at + 1 < len(words) else ""
            return value.strip("'\"").removesuffix(".yaml") or None
    return None


def flat(table: Mapping[str, object], above: str = "") -> dict[str, object]:
    """Values by their keys with dots."""
    found: dict[str, object] = {}
    for key, value in table.items():
        name = f"{above}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return found


def settled(table: Mapping[str, object], said: Mapping[str, object]) -> dict[str, object]:
    """What a file's keys are worth once `said` stands above them: references followed, what is computed left out."""
    whole = {**table, **said}
    found = {key: _referred(value, whole, 8) for key, value in table.items()}
    return {key: value for key, value in found.items() if value is not None}


def _referred(value: object, whole: Mapping[str, object], depth: int) -> object:
    """The value behind `${other.key}`; None for one that is computed, or must be given."""
    if not isinstance(value, str) or ("${" not in value and value != "???"):
        return value
    inner = value[2:-1] if value.startswith("${") and value.endswith("}") else ""
    if inner.startswith("oc.select:"):
        inner, _, usual = inner.removeprefix("oc.select:").partition(",")
        return _referred(whole.get(inner, usual or None), whole, depth - 1) if depth else None
    return _referred(whole.get(inner), whole, depth - 1) if depth and inner in whole else None
