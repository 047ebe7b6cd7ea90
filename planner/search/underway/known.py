"""What a search that is stopped has found, in words. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.reasons import in_short, too_large

if TYPE_CHECKING:
    from gpu_plan.planner.search.search import Found


def known_so_far(found: "Found[Any]", looked_at: int, of: int, decided: Sequence[Judgement] = ()) -> tuple[str, ...]:
    """What a search that is stopped has found, one line each: those that may run, then those that cannot.

    `decided` is what model states alone say, also of what was not looked at.
    """
    ordered = found.ranking.ordered(found.plans)
    told = {judgement.title for judgement in (*found.plans, *(lost.judgement for lost in found.rejected))}
    states = [judged for judged in decided if judged.verdict == "no" and judged.title not in told]
    return (
        f"stopped after {looked_at} of {of} kinds of plans; known so far, best first:",
        *(in_short(plan) for plan in ordered),
        *(f"does not fit: {rejected.reason}" for rejected in found.rejected),
        *(f"does not fit: {too_large(judged)}" for judged in states),
    )
