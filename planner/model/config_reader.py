"""Reads a `config.json` that may be broken or hostile: bounded size, depth and time, one-line errors."""

import json
import math
import re
from typing import Any

from gpu_plan.planner.errors import InputError

MAX_BYTES = 5_000_000
"""The largest published configs (21,841 ImageNet labels, written twice) are below 2 MB."""
MAX_DEPTH = 64
MAX_DIGITS = 40
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_config(text: bytes | str, where: str) -> dict[str, Any]:
    """The object in `text`, which `where` names in messages.

    A key that stands twice counts with its last value, as in transformers. Raises InputError for anything
    that is not a JSON object of bounded size and depth with `model_type` or `architectures`.
    """
    config = parse_object(text, where, max_bytes=MAX_BYTES)
    _check_identity(config, where)
    return config


def parse_object(text: bytes | str, where: str, *, max_bytes: int, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """The JSON object in `text`: UTF-8, at most `max_bytes` long and `max_depth` deep, without NaN."""
    if len(text) > max_bytes:
        raise InputError(f"{where} is {len(text):,} bytes long, a file of its kind at most {max_bytes:,}: {_AGAIN}")
    string = _decode(text, where)
    if not string.strip():
        raise InputError(f"{where} is empty: {_AGAIN}")
    try:
        value = json.loads(string, parse_int=_integer, parse_float=_number, parse_constant=_constant)
        if _SURROGATE.search(string):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise InputError(f"{where} is nested too deeply (at most {max_depth} levels): {_AGAIN}") from None
    except _RefusedNumber as error:
        raise InputError(f"{where} holds {error}: write a finite number of ordinary size") from None
    except UnicodeEncodeError:
        raise InputError(f"{where} holds an unpaired surrogate, which is no character: {_AGAIN}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{where} is not valid JSON ({place}: {error.msg}): {_AGAIN}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} holds a JSON {_kind(value)}, not an object: {_AGAIN}")
    _check_depth(value, where, max_depth)
    return value


def canonical_bytes(config: dict[str, Any]) -> bytes:
    """The same bytes for the same config, whatever the order of its keys: what digests are made of."""
    return json.dumps(config, sort_keys=True, separators=(",", ":")).encode("ascii")


def shown(value: object, limit: int = 60) -> str:
    """`value` as one short piece of a message."""
    text = repr(value) if not isinstance(value, (list, dict)) else f"a {_kind(value)} of {len(value)}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


_AGAIN = "check the file or fetch it again"


class _RefusedNumber(Exception):
    pass


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _RefusedNumber(f"an integer of {len(digits)} digits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _RefusedNumber(f"the number {shown(digits, 30)}")
    return value


def _constant(name: str) -> float:
    """Mamba-2 configs are published with `"time_step_limit": [0.0, Infinity]`; NaN is always a fault."""
    if name == "NaN":
        raise _RefusedNumber("NaN, which is no number")
    return math.inf if name == "Infinity" else -math.inf


def _decode(text: bytes | str, where: str) -> str:
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 text (byte {error.start}): {_AGAIN}") from None


def _kind(value: object) -> str:
    names = {list: "list", str: "string", bool: "boolean", int: "number", float: "number", dict: "object"}
    return names.get(type(value), "null")


def _check_depth(value: dict[str, Any], where: str, max_depth: int) -> None:
    level: list[Any] = [value]
    for _ in range(max_depth):
        children = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for group in children for child in group if isinstance(child, (dict, list))]
        if not level:
            return
    raise InputError(f"{where} is nested too deeply (at most {max_depth} levels): {_AGAIN}")


def _check_identity(config: dict[str, Any], where: str) -> None:
    model_type, architectures = config.get("model_type"), config.get("architectures")
    if model_type is None and architectures is None:
        raise InputError(f"{where} has neither model_type nor architectures: it does not describe a transformers model")
    if model_type is not None and not (isinstance(model_type, str) and model_type):
        raise InputError(f"{where}: model_type is {shown(model_type)}: write a name such as 'llama'")
    named = isinstance(architectures, list) and all(isinstance(name, str) and name for name in architectures)
    if architectures is not None and not named:
        raise InputError(f"{where}: architectures is {shown(architectures)}: write a list of class names")
