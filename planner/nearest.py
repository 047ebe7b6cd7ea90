"""Nearest names for a misspelt one."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], limit: int = 3) -> str:
    """` Did you mean a, b or c?` for names close to `name`, or an empty string."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=limit, cutoff=0.5)
    names = [by_lower[match] for match in close]
    if not names:
        return ""
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
    return f" Did you mean {listed}?"
