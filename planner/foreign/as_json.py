"""JSON of others as values. Pure."""

import json
import math
import re

from gpu_plan.planner.foreign.limits import (
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_DIGITS,
    MalformedError,
    check_depth,
    decoded,
    too_deep,
)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class RefusedNumberError(MalformedError):
    """A number without bounds, or none."""


def json_value(text: bytes | str, *, max_depth: int = MAX_DEPTH, infinity: bool = False) -> object:
    """The value in `text`. MalformedError for what is cut off, too deep, too much, no number, or half a character.

    Its caller has bounded the length. `infinity` lets `Infinity` pass, as transformers' configs have it; NaN never.
    """
    string = decoded(text)
    if not string.strip():
        raise MalformedError("is empty")
    if string.count("{") + string.count("[") > MAX_CONTAINERS:
        raise MalformedError(f"holds more than {MAX_CONTAINERS:,} lists and objects")
    try:
        value = json.loads(
            string, parse_int=_integer, parse_float=_number, parse_constant=_infinite if infinity else _refuse
        )
        if _SURROGATE.search(string):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise too_deep(max_depth) from None
    except UnicodeEncodeError:
        raise MalformedError("holds an unpaired surrogate, which is not a character") from None
    except json.JSONDecodeError as error:
        raise MalformedError(f"is not valid JSON (line {error.lineno}, column {error.colno}: {error.msg})") from None
    if isinstance(value, (dict, list)):
        check_depth(value, max_depth)
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise RefusedNumberError(f"holds an integer of {len(digits)} digits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise RefusedNumberError(f"holds a number beyond all bounds ({digits[:20]})")
    return value


def _infinite(name: str) -> float:
    """Mamba-2 configs are published with `"time_step_limit": [0.0, Infinity]`; NaN is always a fault."""
    return _refuse(name) if name == "NaN" else math.inf if name == "Infinity" else -math.inf


def _refuse(name: str) -> float:
    raise RefusedNumberError(f"holds {name}, which is not a number")
