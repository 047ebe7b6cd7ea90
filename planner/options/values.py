"""Words of options as values: what makes no sense is one line, with the nearest that does."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from gpu_plan.planner.errors import NotBuiltError, UsageError
from gpu_plan.planner.workload.named import Named, known_names

E = TypeVar("E", bound=StrEnum | Named)


def choice(kind: type[E], value: str | None, option: str, *, where: str = "", later: Sequence[str] = ()) -> E | None:
    """A member of `kind`, or None when nothing was given.

    UsageError for an unknown word (`where`: of which task), NotBuiltError for one that later versions bring.
    """
    if value is None:
        return None
    try:
        return kind(value.lower())
    except ValueError:
        # Imported where it is needed: `--help` must start at once.
        from gpu_plan.planner.nearest import did_you_mean

        if value.lower() in later:
            raise NotBuiltError(f"{option} {value.lower()}") from None
        names = known_names(kind)
        hint = did_you_mean(value.lower(), names, limit=1)
        raise UsageError(f"{option} {value!r} is unknown{where}: use {', '.join(names)}.{hint}") from None


_LARGEST = 2**31


def positive(value: str | None, option: str) -> int | None:
    """A positive integer, also written `4k` for 4096."""
    if value is None:
        return None
    text = value.strip().lower().replace("_", "")
    factor = 1024 if text.endswith("k") else 1
    digits = text.removesuffix("k")
    number = int(digits) * factor if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0
    if not 0 < number < _LARGEST:
        searched = ": leave it out, and it is searched" if value.strip().lower() in ("auto", "max") else ""
        raise UsageError(f"{option} {value!r} is not a positive integer{searched}")
    return number


_WEEK = 7 * 24 * 3600


def script_seconds(word: str | None) -> float | None:
    """What `--script-seconds` says. UsageError for what is no number of seconds from 1 to a week."""
    if word is None:
        return None
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= _WEEK:
        raise UsageError(f"--script-seconds {word[:40]}: give seconds of processor time, from 1 to {_WEEK}")
    return seconds
