"""What a search that is stopped has found, in words. Pure."""

from collections.abc import Sequence
from typing import Any

from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.reasons import in_short, too_large
from gpu_plan.planner.search.task import Rejected


def known_so_far(
    plans: Sequence[Judgement],
    rejected: Sequence[Rejected[Any]],
    *,
    looked_at: int,
    of: int,
    decided: Sequence[Judgement] = (),
) -> tuple[str, ...]:
    """What a search that is stopped has found, one line each: those that may run, then those that cannot.

    `plans`: best first; `decided` is what model states alone say, also of what was not looked at.
    """
    told = {judgement.title for judgement in (*plans, *(lost.judgement for lost in rejected))}
    states = [judged for judged in decided if judged.verdict == "no" and judged.title not in told]
    lines = (
        *(in_short(plan) for plan in plans),
        *(f"does not fit: {lost.reason}" for lost in rejected),
        *(f"does not fit: {too_large(judged)}" for judged in states),
    )
    found = tuple(dict.fromkeys(lines))  # kinds that differ in checkpointing alone may fail alike
    stopped = f"stopped after {looked_at} of {of} kinds of plans; "
    return (stopped + ("known so far, best first:" if found else "no more is known"), *found)
