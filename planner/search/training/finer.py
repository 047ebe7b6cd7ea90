"""What is tried around plans that were looked at: gathered weights that stay, segments that grow where blocks alone
leave no room, less that is computed again, several micro batches to a step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from gpu_plan.planner.memory.allocator.pools import least_reserved
from gpu_plan.planner.search.ranking.rules import LONGER, Ranking, is_cramped, standing
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.workload.prefer import Prefer
from gpu_plan.planner.workload.training import Checkpointing

RESHARD = "fsdp.reshard_after_forward"
EVERY = "checkpoint.every"
EXPANDS = "alloc.expandable_segments"
DISTANCES = (2, 4)
"""Of so many layers one is checkpointed: with the next distance less is computed again and more is kept."""


def unresharded(evaluator: Evaluator, families: Sequence[Family], plans: Sequence[StepJudgement]) -> Iterator[Family]:
    """Families that fit, with what is gathered for forward kept for backward: more memory, fewer gathers, no trace."""
    if RESHARD in dict(evaluator.workload.settings):
        return
    for family in families:
        open_to_it = RESHARD in family.strategy.traits.settings and family.offload is Offload.NONE
        if open_to_it and family.copy_ranks == 1 and _fits(family, plans):
            yield replace(family, settings=((RESHARD, "false"),))


def expanded(
    evaluator: Evaluator, ranking: Ranking, plans: Sequence[StepJudgement], others: Sequence[StepJudgement]
) -> Iterator[Family]:
    """Families that keep to the devices, of which a micro batch leaves room for its tensors there and its allocator
    does not surely, with segments that grow: blocks of one size then serve another. torch's own message at the end of
    memory advises it (pytorch c10/cuda/CUDACachingAllocator.cpp: malloc), torchtitan's run_train.sh and axolotl's
    set_pytorch_cuda_alloc_conf set it. No trace is made.

    Tried where nothing that surely fits is as fast, a smaller micro batch of the same family or any other; of such a
    family what is larger alone. `plans` is read as it grows; `others` is whatever else was judged.
    """
    fit = {plan.family: plan for plan in plans if plan.device_verdict == "fits"}
    short: dict[Family, list[StepJudgement]] = {}
    for plan in chain(plans, others):
        own = fit.get(plan.family)
        beside = plan.device_verdict != "fits" if own is None else _faster(plan, own)
        if beside and by_blocks(evaluator, plan):
            short.setdefault(plan.family, []).append(plan)
    for family, known in sorted(short.items(), key=lambda item: min(map(ranking.expected, item[1]))):
        fastest = min((ranking.expected(one) for one in plans if standing(one) == 0), default=None)
        better = [plan for plan in known if fastest is None or ranking.expected(plan) * LONGER < fastest]
        if better and family not in fit:
            yield grown(family)
        elif sizes := [plan.batch.micro_batch for plan in better if _has_room_grown(plan)]:
            yield grown(family, min(sizes))


def _faster(plan: StepJudgement, fits: StepJudgement) -> bool:
    """Whether a plan would have been taken before one of its family that fits, had its allocator let it."""
    return plan.samples_per_second > LONGER * fits.samples_per_second


def _has_room_grown(plan: StepJudgement) -> bool:
    """Whether it may surely fit with segments that grow, which needs its stream and no simulation."""
    stream, outside = plan.stream, sum(term.high for term in plan.terms)
    least = least_reserved(stream.event_sign, stream.event_tensor, stream.sizes(plan.replayed), stream.cuda_stream)
    return least + outside <= plan.capacity_bytes


def from_size(cuts: list[Batch], size: int) -> list[Batch]:
    """Cuts of at least a micro batch, which is tried as well where only the number of micro batches is free."""
    larger = [cut for cut in cuts if cut.micro_batch >= size]
    if size == 1 or (larger and larger[0].micro_batch == size):
        return larger
    return [replace(cuts[0], micro_batch=size), *larger]


def grown(family: Family, size: int = 1) -> Family:
    """The same with segments that grow, from a micro batch on."""
    return replace(family, settings=((EXPANDS, "true"),), from_size=size)


def by_blocks(evaluator: Evaluator, plan: StepJudgement) -> bool:
    """Whether a plan of the job's own class has room for its tensors, so that what its allocator holds beyond them, of
    which nothing was said, alone may keep it from fitting."""
    given = any(key.startswith("alloc.") for key, _ in evaluator.workload.settings)
    if given or evaluator.cluster.gpu.vendor != "nvidia":  # of ROCm nothing was read
        return False
    family = plan.family
    own = family.pipeline is None and family.layout is None and not family.settings and family.batch is None
    room = not plan.states_only and plan.least_bytes <= plan.capacity_bytes
    return own and room and not plan.offloads and not plan.conditions


def sparser(
    evaluator: Evaluator, families: Sequence[Family], ranking: Ranking, plans: Sequence[StepJudgement]
) -> Iterator[Family]:
    """The kind that is first, with what is cheap computed again alone, and with one layer in several checkpointed,
    where all are in a plan that fits.

    `plans` is read as it grows: where one distance does not fit, the next keeps more. Each takes a trace.
    """
    if EVERY in dict(evaluator.workload.settings) or evaluator.workload.checkpointing is not None:
        return
    fitting = [plan for plan in plans if standing(plan) == 0]
    if not fitting:
        return
    first = ranking.ordered(fitting)[0].family
    for family in families:
        if family.checkpointing is not Checkpointing.FULL or family.copy_ranks > 1:
            continue
        if replace(family, checkpointing=first.checkpointing) != replace(first, settings=(), from_size=1):
            continue
        if _fits(family, plans):
            yield replace(family, checkpointing=Checkpointing.SELECTIVE)
        fewer = family
        for distance in DISTANCES:
            if _fits(fewer, plans):
                fewer = replace(family, settings=((EVERY, str(distance)),))
                yield fewer


def too_slow(
    evaluator: Evaluator, family: Family, cuts: Sequence[Batch], ranking: Ranking, plans: Sequence[StepJudgement]
) -> str | None:
    """Why what computes less again is not traced: were nothing computed again, and were there room for it, a sample
    would hardly take less than in the fastest plan that is known. None where it might."""
    if evaluator.workload.checkpointing is not None or family.batch is not None or not computes_less(family):
        return None
    fitting = [plan for plan in plans if standing(plan) == 0]
    whole = replace(family, checkpointing=Checkpointing.FULL, settings=())
    largest = max(plan.batch.micro_batch for plan in fitting if replace(plan.family, settings=()) == whole)
    provider = evaluator.provider
    if isinstance(provider, TraceProvider) and provider.ships(evaluator.variant(whole), largest):
        selects = family.checkpointing is Checkpointing.SELECTIVE
        option = "--checkpointing selective" if selects else "--set checkpoint.every"
        return f"it would take a trace of its own, where the others are shipped: {option} asks for it"
    kept = replace(family, checkpointing=Checkpointing.NONE, settings=())
    times = list(_times(evaluator, kept, [batch for batch in cuts if batch.micro_batch <= largest], ranking))
    fastest = ranking.fastest(fitting)
    if times and min(times) * LONGER < ranking.expected(fastest):
        return None
    return f"hardly faster than {fastest.title} even if nothing were computed again"


def _times(evaluator: Evaluator, family: Family, cuts: Sequence[Batch], ranking: Ranking) -> Iterator[float]:
    for batch in cuts:
        try:
            yield ranking.expected(evaluator.judge_uncounted(family, batch))
        except NotTraceableError:
            return  # larger than any shipped trace


def computes_less(family: Family) -> bool:
    """Whether it computes again less than all of its layers, which takes a trace of its own."""
    return family.checkpointing is Checkpointing.SELECTIVE or EVERY in dict(family.settings)


def accumulated(evaluator: Evaluator, ranks: int, ranking: Ranking, plans: Sequence[StepJudgement]) -> Iterator[Family]:
    """Plans with small batches, with as many micro batches to a step as make up the samples of the largest step that
    fits: what is done once a step is compared over the same samples. Nobody's batch grows by it, and nothing is traced.

    Gradients that wait for the next micro batch take room: where they leave too little, smaller micro batches follow.
    `plans` is read as it grows. Left out is what would hardly be faster than the fastest were that work free, and what
    gains no more than a tie.
    """
    workload = evaluator.workload
    fixed = workload.global_batch is not None or workload.grad_accum is not None
    if fixed or ranking.prefer in (Prefer.MEMORY, Prefer.SIMPLE):
        return
    fitting = [plan for plan in plans if standing(plan) == 0 and not plan.offloads and _steps_once(plan)]
    most = max((_samples(plan, ranks) for plan in fitting), default=0)
    for plan in fitting:
        for size in _smaller(plan.batch.micro_batch, fixed=workload.micro_batch is not None):
            family = _longer(evaluator, ranking, plans, plan, size, most * plan.family.copy_ranks // ranks)
            if family is None:
                break
            yield family
            if _has_room(family, ranking, plans):
                break


def _smaller(size: int, *, fixed: bool) -> tuple[int, ...]:
    """A micro batch, three quarters and half of it."""
    sizes = (size,) if fixed else (size, 3 * size // 4, size // 2)
    return tuple(dict.fromkeys(one for one in sizes if one > 0))


def _longer(
    evaluator: Evaluator, ranking: Ranking, plans: Sequence[StepJudgement], plan: StepJudgement, size: int, share: int
) -> Family | None:
    """The plan's family with as many micro batches to a step as make up a `share` of samples on each rank that has its
    own; None where that gains nothing."""
    steps = share // size
    fastest = ranking.fastest([known for known in plans if standing(known) == 0])
    least = ranking.expected(plan) * (1 - _once_a_step(plan))
    if steps <= 1 or least * LONGER >= ranking.expected(fastest):
        return None
    once = Batch(micro_batch=size, accumulation_steps=1)
    one = plan if plan.batch == once else evaluator.judge_uncounted(plan.family, once)
    several = evaluator.judge_uncounted(plan.family, replace(once, accumulation_steps=steps))
    if several.samples_per_second <= LONGER * one.samples_per_second:
        return None
    return replace(plan.family, batch=several.batch)


def _has_room(family: Family, ranking: Ranking, plans: Sequence[StepJudgement]) -> bool:
    """Whether it fits, and leaves what counts as room where that is compared."""
    found = next((plan for plan in plans if plan.family == family), None)
    if found is None or standing(found) != 0:
        return False
    return "cramped" not in ranking.order or not is_cramped(found)


def _steps_once(plan: StepJudgement) -> bool:
    """Whether every micro batch is a step: not in stages, which several keep busy."""
    family = plan.family
    return plan.batch.accumulation_steps == 1 and family.pipeline is None and family.layout is None


def _samples(plan: StepJudgement, ranks: int) -> int:
    return plan.batch.micro_batch * (ranks // plan.family.copy_ranks)


def _once_a_step(plan: StepJudgement) -> float:
    """Part of a plan's time that may be once a step's: its update, and what it waits for others."""
    time = plan.time
    return (time.optimizer_seconds + time.exposed_communication_seconds) / time.step_seconds


def _fits(family: Family, plans: Sequence[StepJudgement]) -> bool:
    return any(plan.family == family and standing(plan) == 0 for plan in plans)
