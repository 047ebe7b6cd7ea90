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
    first, beyond = -(-max(context - more, workload.new_tokens + 1) // step), most // step + 1
    longer = first * step + more < most
    if not (longer and _fails_sooner(at_context, first, beyond)) and _fits(_judged(evaluator, layout, context=most)):
        context, bounds["max_context"] = most, "positions" if positions and most == positions else "searched"
    else:
        bounds["max_context"] = "memory"
        if longer and _fits(at_context(first)):
            context = _largest(at_context, first, beyond) * step + more
    many = max(workload.batch, min(MOST_BATCH, MOST_TOKENS // workload.context))
    too_many = _too_many(plan, many) or _fails_sooner(at_batch, workload.batch, many)
    if not too_many and _fits(at_batch(many)):
        batch, bounds["max_batch"] = many, "searched"
    else:
        batch, bounds["max_batch"] = _largest(at_batch, workload.batch, many), "memory"
    return Limits(max_context=context, max_batch=batch, bounds=bounds)


def _too_many(plan: GenerationJudgement, batch: int) -> bool:
    """Whether the caches of so many samples alone are more than the device holds, by far: what a cache has that does
    not grow with the batch is a small part of it."""
    return plan.kv_cache_bytes * batch > 2 * plan.capacity_bytes * plan.batch


def _fails_sooner(at: Callable[[int], GenerationJudgement | None], first: int, most: int) -> bool:
    """Whether a size below `most` fails, the one that is tried next in any case: memory never shrinks with size, and
    `most`, millions of tokens, takes long to record."""
    low = at(first)
    if low is None or not _fits(low):
        return True
    guess = _between(first, most, low, None, halve=False)
    return guess < most - 1 and not _fits(at(guess))


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


def _largest(at: Callable[[int], GenerationJudgement | None], fits: int, fails: int) -> int:
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
