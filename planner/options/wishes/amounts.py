"""Money, counts of tokens and spans of time, as options say them. One line for what makes no sense."""

import math
import re

from gpu_plan.planner.errors import UsageError

_COUNT = re.compile(r"(\d+(?:\.\d+)?(?:[eE]\d{1,2})?)\s*([kKmMbBgGtT]?)")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_MONEY = re.compile(r"\$?\s*(\d{1,12}(?:\.\d+)?)([kKmM]?)\s*\$?")
_SPAN = re.compile(r"(\d{1,9}(?:\.\d+)?)\s*(min|h|d|w)")
_SECONDS = {"min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MOST = 10**18


def count(value: str, option: str) -> int:
    """`15T`, `1.2B`, `500k`, `1e9`: a positive number of tokens, in thousands of 1000."""
    match = _COUNT.fullmatch(value.strip().replace("_", "").replace(",", ""))
    number = float(match[1]) * _FACTORS[match[2].lower()] if match else 0.0
    if not 1 <= number <= _MOST:
        raise UsageError(f"{option} {value[:40]!r} is not a number of tokens: write it like 15T, 1.2B or 500k")
    return round(number)


def dollars(value: str, option: str) -> float:
    """`$500`, `2.5`, `10k`: US dollars above 0."""
    match = _MONEY.fullmatch(value.strip().replace(",", ""))
    amount = float(match[1]) * _FACTORS[match[2].lower()] if match else 0.0
    if amount <= 0:
        raise UsageError(f"{option} {value[:40]!r} is not a sum in dollars: write it like 500 or 2.50")
    return amount


def span(value: str, option: str) -> float:
    """`3d`, `12h`, `90min`, `2w`: seconds above 0."""
    match = _SPAN.fullmatch(value.strip().lower())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise UsageError(f"{option} {value[:40]!r} is not a span of time: write it like 12h, 3d or 2w")
    return seconds


def times(value: str, option: str) -> float:
    """`3`, `0.5`: how often a data set is gone through."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not (math.isfinite(number) and 0 < number <= 1e6):
        raise UsageError(f"{option} {value[:40]!r} is not a number of passes: write it like 3")
    return number
