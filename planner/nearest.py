"""Nearest names for a misspelt one."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], limit: int = 3) -> str:
    """` Did you mean a, b or c?` for what people call one of `known` so, else for names close to `name`; or nothing."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    names = [by_lower[one] for one in _meant(name.lower()) if one in by_lower]
    if not names:
        close = difflib.get_close_matches(name.lower(), by_lower, n=limit, cutoff=0.5)
        names = [by_lower[match] for match in close]
    if not names:
        return ""
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
    return f" Did you mean {listed}?"


def _meant(word: str) -> tuple[str, ...]:
    """Values that other programs, and people, call so."""
    # Imported where they are needed: nothing is misspelt as a rule.
    import tomllib
    from importlib import resources

    with resources.files("gpu_plan.planner.options").joinpath("meant.toml").open("rb") as file:
        return tuple(tomllib.load(file).get(word, ()))
