"""What ranks recorded of losses that are no finite numbers, in words. Pure."""

from collections.abc import Sequence

from gpu_plan.executor.records.rank import RankRecord

NOT_FINITE_LOSS = "gpu_plan.NotFiniteLoss"
"""What a rank ends with under --stop-on-nan."""


def loss_kind(word: str | None) -> str:
    """`NaN` or `infinite`, of a record's word."""
    return "infinite" if word in ("inf", "-inf") else "NaN"


def not_finite(ranks: Sequence[RankRecord]) -> str:
    """`the loss was NaN from step 3 on, 6 steps (ranks 0, 1)`; empty where every loss was a finite number."""
    found: dict[str, list[int]] = {}
    for rank in sorted(ranks, key=lambda rank: rank.rank):
        words = _of(rank)
        if words:
            found.setdefault(words, []).append(rank.rank)
    parts = [
        words
        if len(ranks) == 1
        else f"{words} ({'ranks' if len(numbers) > 1 else 'rank'} {', '.join(map(str, numbers))})"
        for words, numbers in found.items()
    ]
    return "; ".join(parts)


def first_not_finite(ranks: Sequence[RankRecord]) -> int | None:
    """The first step at which any rank's loss was no finite number."""
    steps = (rank.summary.first_not_finite for rank in ranks)
    return min((step for step in steps if step is not None), default=None)


def _of(rank: RankRecord) -> str:
    summary = rank.summary
    first, count = summary.first_not_finite, summary.not_finite_steps
    if first is None:
        return ""
    what = loss_kind(next((step.not_finite for step in rank.steps if step.not_finite is not None), None))
    if count == 1:
        return f"the loss was {what} at step {first}"
    last = rank.steps[-1].step if rank.steps else first
    if summary.last_not_finite is not None and count == last - first + 1:
        return f"the loss was {what} from step {first} on, {count} steps"
    return f"the loss was {what} at step {first}, and was not finite at {count} steps in all"
