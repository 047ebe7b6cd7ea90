"""One row of a truth file, read field by field: whatever stands there, the answer is a value or a reason."""

import math
import re
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
MOST = 2**40
"""Larger counts are no measurement."""


class SetAside(Exception):
    """Why a row is not scored, in words."""


def field(row: Row, path: str) -> Any:
    """`measured.peak_allocated_gib` and the like; None where a step is missing or no mapping."""
    found: Any = row
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def text(row: Row, path: str) -> str:
    """A string; empty where there is none."""
    found = field(row, path)
    return " ".join(found.split()) if isinstance(found, str) else ""


def number(row: Row, path: str) -> float | None:
    """A finite positive number; None where there is none."""
    found = field(row, path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        value = float(found)
    except OverflowError:
        return None
    return value if math.isfinite(value) and 0 < value < MOST else None


def whole(row: Row, path: str) -> int | None:
    """A whole positive number; None where there is none."""
    found = number(row, path)
    return int(found) if found is not None and found == int(found) else None


def needed(row: Row, path: str, called: str, most: int) -> int:
    """A whole number between 1 and `most`. SetAside where the row has none, or one that makes no sense."""
    found = field(row, path)
    if found is None:
        raise SetAside(f"{called} not stated")
    value = whole(row, path)
    if value is None or value > most:
        raise SetAside(f"{called} makes no sense")
    return value


_OTHER_TASKS = re.compile(r"\b(dpo|ipo|kto|orpo|simpo|cpo|reward|rm|ppo|grpo|rloo|rlhf|gkd|distill\w*)\b")
_AXES = ("dp", "tp", "pp", "cp", "ep")


def check_sense(row: Row) -> None:
    """SetAside for a training run that says what no rule can read where a default would otherwise be taken, or that is
    no step of one model on one batch."""
    if not isinstance(field(row, "quantization"), str | None):
        raise SetAside("quantization makes no sense")
    if not isinstance(field(row, "compile"), bool | None):
        raise SetAside("whether it is compiled makes no sense")
    counts = {"gradient accumulation": "grad_accum", **{f"degree {axis}": f"parallel.{axis}" for axis in _AXES}}
    for called, path in counts.items():
        if field(row, path) is not None and whole(row, path) is None:
            raise SetAside(f"{called} makes no sense")
    if not isinstance(field(row, "parallel"), Mapping | None):
        raise SetAside("degrees of parallelism make no sense")
    task = text(row, "task").lower()
    if _OTHER_TASKS.search(task):
        raise SetAside(f"task {task}: no step of one model on one batch")


def is_true(row: Row, path: str) -> bool:
    return field(row, path) is True


def identity(row: Row) -> str:
    """The row's id."""
    return text(row, "id") or "without id"


def software_group(row: Row) -> str:
    """The source family that a row belongs to."""
    return text(row, "group") or "without group"
