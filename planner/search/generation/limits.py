"""The longest context and the largest batch that fit: by evaluating real traces, not by a formula."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpu_plan.planner.search.generation.evaluate import GenerationEvaluator
from gpu_plan.planner.search.generation.judgement import GenerationJudgement
from gpu_plan.planner.strategy.generation.layout import Layout
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.workload.generation import MOST_TOKENS

CONTEXT_STEP = 64
"""Tokens to which the longest context is found."""
_LEAST_STEPS = 2
"""Fewer of them are no context to offer; generations are shipped from here on."""
MOST_CONTEXT = 2**20
MOST_BATCH = 4096
_ROUNDS = 12
_At = Callable[[int], GenerationJudgement | None]
"""Judges a size; None where it cannot even be laid out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a plan can be taken."""

    max_context: int | None
    max_batch: int | None
    bounds: Mapping[str, str]
    """Of each: `memory` (one step more does not fit), `positions` (the model has no more), `searched` (all that was
    tried fits)."""


NO_LIMITS = Limits(max_context=None, max_batch=None, bounds={})
"""Of a plan whose limits were not looked for."""


def limits(evaluator: GenerationEvaluator, plan: GenerationJudgement, positions: int | None) -> Limits:
    """Those of a plan that fits, with its layout and on the devices alone."""
    workload = evaluator.workload
    layout = replace(plan.layout, offload="none")

    step = workload.chunk or CONTEXT_STEP
    more = workload.new_tokens if workload.chunk else 0  # prompts of whole pieces, which tell each other's sizes

    def at_context(units: int) -> GenerationJudgement | None:
        return _judged(evaluator, layout, context=units * step + more)

    def at_batch(batch: int) -> GenerationJudgement | None:
        return _judged(evaluator, layout, batch=batch)

    bounds: dict[str, str] = {}
    most = max(context := workload.context, min(positions or MOST_CONTEXT, MOST_TOKENS // workload.batch))
    first = -(-max(context - more, workload.new_tokens + 1) // step)
    beyond = most // step + 1 if first * step + more < most else first
    units = _limit(at_context, first, beyond, lambda: _judged(evaluator, layout, context=most))
    if units is None:
        context, bounds["max_context"] = most, "positions" if positions and most == positions else "searched"
    else:
        context, bounds["max_context"] = units * step + more if units else context, "memory"
    many = max(workload.batch, min(MOST_BATCH, MOST_TOKENS // workload.context))
    batch = _limit(at_batch, workload.batch, many, lambda: None if _too_many(plan, many) else at_batch(many))
    bounds["max_batch"] = "searched" if batch is None else "memory"
    max_batch = many if batch is None else max(batch, workload.batch)
    return Limits(max_context=context, max_batch=max_batch, bounds=bounds)


def _too_many(plan: GenerationJudgement, batch: int) -> bool:
    """Whether the caches of so many samples alone are more than the device holds, by far: what a cache has that does
    not grow with the batch is a small part of it."""
    return plan.kv_cache_bytes * batch > 2 * plan.capacity_bytes * plan.batch


def _limit(at: _At, first: int, last: int, whole: Callable[[], GenerationJudgement | None]) -> int | None:
    """The largest size from `first` on that fits, 0 where none is known to; None where the `whole` fits, at `last`.

    Memory never shrinks with size, so that the whole, which may be a prompt of millions of tokens and slow to record,
    is looked at where growth says that it may fit, or where nothing below it failed.
    """
    if first >= last:
        return None if _fits(whole()) else 0
    low = at(first)
    if low is None or not _fits(low):
        return 0
    if _between(first, last, low, None, halve=False) >= last - 1 and _fits(whole()):
        return None
    found = _largest(at, first, last)
    return None if found == last - 1 and _fits(whole()) else found


def held_by_devices(evaluator: GenerationEvaluator, layout: Layout, size: str) -> GenerationJudgement | None:
    """The largest `size` (`context` or `batch`) up to what was asked for that the devices hold alone, the other one as
    it was asked for; None where not even the smallest fits, or nothing smaller can be asked for."""
    workload, alone = evaluator.workload, replace(layout, offload="none")
    step = CONTEXT_STEP if size == "context" else 1
    least = max(_LEAST_STEPS, -(-(workload.new_tokens + 1) // step)) if size == "context" else 1
    asked = -(-(workload.context if size == "context" else workload.batch) // step)

    def at(units: int) -> GenerationJudgement | None:
        return _judged(evaluator, alone, **{size: units * step})

    if least >= asked or not _fits(at(least)):
        return None
    return at(_largest(at, least, asked))


def _judged(evaluator: GenerationEvaluator, layout: Layout, **size: int) -> GenerationJudgement | None:
    """None where a size cannot even be laid out."""
    try:
        return evaluator.judge(layout, **size)
    except CannotSplitError:
        return None


def _fits(judgement: GenerationJudgement | None) -> bool:
    return judgement is not None and judgement.verdict == "fits"


def _largest(at: _At, fits: int, fails: int) -> int:
    """The largest size that fits, between one that does and one that does not.

    Guided by what memory grows by: the next size tried is where a line through the two would meet the capacity.
    """
    low, high = at(fits), None
    for round_ in range(_ROUNDS * 4):
        if fails - fits <= 1 or low is None:
            break
        guess = _between(fits, fails, low, high, halve=round_ >= _ROUNDS)
        judged = at(guess)
        if _fits(judged):
            fits, low = guess, judged
        else:
            fails, high = guess, judged
    return fits


def _between(fits: int, fails: int, low: GenerationJudgement, high: GenerationJudgement | None, *, halve: bool) -> int:
    if halve or (high is not None and high.high_bytes <= low.high_bytes):
        guess = (fits + fails) // 2
    elif high is None:
        # Nothing is known above: as much again as the free part allows, by what this size itself takes.
        spent = max(1, low.profile.peak_allocated_bytes - low.weight_bytes)
        guess = int(fits * (1 + (low.capacity_bytes - low.high_bytes) / spent))
    else:
        share = (low.capacity_bytes - low.high_bytes) / (high.high_bytes - low.high_bytes)
        guess = fits + int((fails - fits) * share)
    return min(max(guess, fits + 1), fails - 1)
