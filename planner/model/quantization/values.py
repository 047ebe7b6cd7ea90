"""Reads single values of a config with one-line refusals."""

import re
from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.config_reader import shown

MAX_NAMES = 100_000
MAX_PATTERN = 500
_REPEATS_REPEATED = re.compile(r"[*+}][^()]*\)[*+{]")
"""A repeated group that holds a repeat, which matches in exponential time."""


def flag(values: Mapping[str, Any], key: str, where: str, default: bool = False) -> bool:
    """The boolean under `key`; null means the default."""
    value = values.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key} is {shown(value)}: write true or false")
    return value


def number(values: Mapping[str, Any], key: str, where: str, default: int | None, allowed: tuple[int, ...]) -> int:
    """The integer under `key`, one of `allowed`; without a default it must be there."""
    value = values.get(key, default)
    if type(value) is not int or value not in allowed:
        raise InputError(f"{where}: {key} is {shown(value)}: it can be {', '.join(map(str, allowed))}")
    return value


def one_of(values: Mapping[str, Any], key: str, allowed: tuple[str, ...], where: str, default: str) -> str:
    """The word under `key`, one of `allowed`; null means the default."""
    value = values.get(key)
    if value is None:
        return default
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{where}: {key} is {shown(value)}: it can be {', '.join(allowed)}")
    return value


def names(values: Mapping[str, Any], key: str, where: str) -> tuple[str, ...] | None:
    """The list of texts under `key`; None where it is absent or null."""
    value = values.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise InputError(f"{where}: {key} is {shown(value)}: write a list of module names")
    if len(value) > MAX_NAMES:
        raise InputError(f"{where}: {key} lists {len(value):,} modules: check the file or fetch it again")
    for item in value:
        check_pattern(item.removeprefix("re:"), f"{where}: {key}")
    return tuple(value)


def check_pattern(pattern: str, where: str) -> None:
    """InputError where `pattern`, which names are matched with, is no expression or could take for ever."""
    if len(pattern) > MAX_PATTERN or _REPEATS_REPEATED.search(pattern):
        raise InputError(f"{where}: {shown(pattern)} is too involved for a module's name: write a plain name")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        raise InputError(f"{where}: {shown(pattern)} is neither a module's name nor a pattern of names") from None
