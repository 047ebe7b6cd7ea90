"""Frozen dataclasses to JSON and back, strictly, with one-line errors that name file and key."""

import json
import math
import operator
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.foreign.limits import MalformedError

T = TypeVar("T")

MAX_BYTES = 64_000_000
"""A document of every candidate with its tensors is a few MB."""
_AGAIN = "make the plan again"


def dump(value: object, indent: int | None = 2) -> str:
    """JSON in field order, mappings in their own; ASCII only. Raises ValueError on NaN and infinities."""
    separators = (",", ":") if indent is None else None
    return json.dumps(plain(value), indent=indent, separators=separators, allow_nan=False)


def canonical(value: object) -> bytes:
    """The same bytes for equal values, whatever the order of keys: what digests are made of."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def plain(value: object) -> Any:
    """`value` in JSON's own types; dataclasses as objects of all their fields, integers exact.

    Raises ValueError or TypeError for what JSON cannot hold.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value.value) if hasattr(value, "value") else value  # StrEnum
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} cannot be written as JSON")
        return float(value)
    names = _names(value.__class__)  # type: ignore[arg-type]  # of instances mypy knows no class that can be hashed
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("the keys of a JSON object are strings")
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "__index__"):
        return operator.index(value)  # numpy's integers too
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Of a dataclass's fields; None of any other class."""
    return tuple(entry.name for entry in fields(kind)) if is_dataclass(kind) else None


def load_object(text: str | bytes, where: str) -> dict[str, object]:
    """The JSON object in `text`. InputError in one line if it is cut off, oversized, nested or no object."""
    if len(text) > MAX_BYTES:
        raise InputError(f"{where} is {len(text):,} bytes long, a plan at most {MAX_BYTES:,}: {_AGAIN}")
    try:
        value = json_value(text)
    except MalformedError as error:
        raise InputError(f"{where} {error}: {_AGAIN}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} holds {_called(value)}, not an object: {_AGAIN}")
    return value


def decode(kind: type[T], value: object, where: str, key: str = "") -> T:
    """`value` as an instance of the dataclass `kind`. Unknown keys are passed over, derived ones compared.

    Raises InputError in one line that names `where` and the key.
    """
    try:
        decoded: T = _dataclass(kind, value, key)
    except _WrongError as error:
        raise InputError(f"{where}: {error}: {_AGAIN}") from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply: {_AGAIN}") from None
    return decoded


class _WrongError(Exception):
    """What is wrong at which key."""


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _dataclass(kind: Any, value: object, key: str) -> Any:
    if not isinstance(value, dict):
        raise _expected(key or "the document", value, "an object")
    hints = _hints(kind)
    missing = [entry.name for entry in fields(kind) if _required(entry) and entry.name not in value]
    if missing:
        raise _WrongError(f"{key or 'the document'} has no {', '.join(missing)}")
    given: dict[str, Any] = {}
    derived: dict[str, Any] = {}
    for entry in fields(kind):
        if entry.name in value:
            path = f"{key}.{entry.name}" if key else entry.name
            found = _value(hints[entry.name], value[entry.name], path)
            (given if entry.init else derived)[entry.name] = found
    try:
        made = kind(**given)
    except ValueError as error:
        raise _WrongError(f"{key}: {error}" if key else str(error)) from None
    for name, found in derived.items():
        if found != getattr(made, name):
            path = f"{key}.{name}" if key else name
            says = f"{path} is {_called(found)}, but the rest says {_called(getattr(made, name))}"
            raise _WrongError(f"it was edited by hand: {says}" if name == "digest" else says)
    return made


def _required(entry: Field[Any]) -> bool:
    return entry.init and entry.default is MISSING and entry.default_factory is MISSING


def _value(hint: Any, value: object, key: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _value(next(kind for kind in arguments if kind is not type(None)), value, key)
    if origin is Literal:
        if not isinstance(value, str) or value not in arguments:
            raise _expected(key, value, "one of " + ", ".join(arguments))
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise _expected(key, value, "a list")
        return tuple(_value(arguments[0], item, f"{key}[{index}]") for index, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise _expected(key, value, "an object")
        return {name: _value(arguments[1], item, f"{key}.{name}") for name, item in value.items()}
    if is_dataclass(hint):
        return _dataclass(hint, value, key)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if not isinstance(value, str) or value not in list(hint):
            raise _expected(key, value, "one of " + ", ".join(hint))
        return hint(value)
    return _scalar(hint, value, key)


_SCALARS: Mapping[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
    bool: ((bool,), "true or false"),
}


def _scalar(hint: Any, value: object, key: str) -> Any:
    if hint is object:
        return value
    accepted, words = _SCALARS[hint]
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise _expected(key, value, words)
    return hint(value)


def _expected(key: str, value: object, words: str) -> _WrongError:
    return _WrongError(f"{key} is {_called(value)}, not {words}")


def _called(value: object) -> str:
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
