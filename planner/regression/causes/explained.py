"""What a growth is said to come from, and the line that is annotated with those very words. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.planner.regression.result import Finding

_NAMED = 3
_ON_HOST = ("parameters", "optimizer_state")
"""Categories of what stands in a node's RAM; the rest stands on devices alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Why a figure grew, and where a reader can act on it."""

    words: str = ""
    """Empty where nothing is known."""
    file: str | None = None
    """None where no line of the project is known to be behind it: then none is annotated."""
    line: int | None = None


def explained(figure: str, causes: Sequence[Finding], inputs: Sequence[Finding]) -> Explained:
    """Of one figure's growth. `causes`: the weightiest first; `inputs`: what was changed, in their own order.

    A line is annotated with what it does itself: where the weightiest cause has no line, with the one input that
    changed; where several did, or none, with a lighter cause that has a line, and both are said. Several changed inputs
    are all named, and no line of theirs is picked.
    """
    grew = [cause for cause in causes if (cause.delta_bytes or 0) > 0 and _concerns(figure, cause)]
    first = grew[0] if grew else None
    if first is not None and first.file:
        return Explained(words=first.message, file=first.file, line=first.line)
    changed = [finding for finding in inputs if finding.file]
    if len(changed) == 1:
        return _at(changed[0], first)
    if changed:
        named = ", ".join(finding.message for finding in changed[:_NAMED])
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        return Explained(words=_joined(f"changed were {named}{more}", first))
    lighter = next((cause for cause in grew if cause.file), None)
    if lighter is not None:
        return _at(lighter, first)
    return Explained(words="" if first is None else first.message)


def _at(place: Finding, first: Finding | None) -> Explained:
    return Explained(words=_joined(place.message, first), file=place.file, line=place.line)


def _joined(words: str, first: Finding | None) -> str:
    return words if first is None else f"{words}; the largest part: {first.message}"


def _concerns(figure: str, cause: Finding) -> bool:
    return not figure.startswith("host.") or cause.category in _ON_HOST
