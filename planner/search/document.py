"""Turns what a search found into the plan document."""

import re
from collections.abc import Callable, Mapping
from functools import partial

from gpu_plan.planner.hardware.cluster import Cluster, cluster_document
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.memory.profile import StandingTensor, standing
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plan.document import (
    Alternative,
    Assumption,
    AtPeak,
    Candidate,
    DevicePrice,
    HostFigures,
    MemoryFigures,
    ModelFacts,
    OutsideAllocator,
    PlanDocument,
    RankingFacts,
    SearchFacts,
    StoredFacts,
    TensorLine,
    UncertainTerm,
    workload_document,
)
from gpu_plan.planner.search.device_use import DeviceUse
from gpu_plan.planner.search.evaluator import J
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.ranking.words import rules, why
from gpu_plan.planner.search.search import Found
from gpu_plan.planner.search.shown.sections import Sections
from gpu_plan.planner.search.task import F, Task
from gpu_plan.planner.trace.events import IntArray
from gpu_plan.planner.workload.stacks.registry import stack_document
from gpu_plan.planner.workload.training import Workload


def document(
    found: Found[J],
    *,
    task: Task[F, J],
    source: ModelSource,
    spec: ModelSpec,
    command: str,
    versions: Mapping[str, str],
    assumptions: tuple[Assumption, ...] = (),
    warnings: tuple[str, ...] = (),
    change: str | None = None,
    headline: str | None = None,
    explain: int = 0,
    alternatives: tuple[Alternative, ...] = (),
    evaluated: int | None = None,
    for_alternatives: int = 0,
    untraced: tuple[str, ...] = (),
    ahead: Callable[[int], Sections | None] = lambda _: None,
) -> PlanDocument:
    """The document of one finished search; `explain` is how many kinds of tensors at the peak are named. `ahead` gives
    what another process worked out of a candidate, the plans' first, then those that were rejected."""
    cluster = task.evaluator.cluster
    return PlanDocument(
        command=command,
        created_with=dict(versions),
        model=model_facts(source, spec),
        cluster=cluster_document(cluster),
        workload=workload_document(task.evaluator.workload),
        plans=tuple(
            candidate_of(
                task, j, best=index == 0, explain=explain, on_front=index in found.front, ahead=partial(ahead, index)
            )
            for index, j in enumerate(found.plans)
        ),
        rejected=tuple(
            candidate_of(task, one.judgement, one.reason, explain=explain, ahead=partial(ahead, index))
            for index, one in enumerate(found.rejected, len(found.plans))
        ),
        assumptions=assumptions,
        warnings=warnings,
        nearest_change=change,
        stack=stack_section(task.evaluator.workload),
        headline=headline,
        prices=device_prices(cluster),
        alternatives=alternatives,
        search=SearchFacts(
            kinds=found.explored,
            candidates=task.evaluator.evaluated if evaluated is None else evaluated,
            left_out=tuple(found.left_out),
            for_alternatives=for_alternatives,
            untraced_alternatives=untraced,
        ),
        ranking=RankingFacts(
            prefer=str(found.ranking.prefer), rules=rules(found.ranking), why=why(found.ranking, found.plans)
        ),
    )


def stack_section(workload: object) -> dict[str, object] | None:
    """The facts of a training job's stack."""
    return stack_document(workload.stack) if isinstance(workload, Workload) else None


def candidate_of(
    task: Task[F, J],
    judgement: J,
    reason: str | None = None,
    *,
    best: bool = False,
    explain: int = 0,
    on_front: bool | None = None,
    ahead: Callable[[], Sections | None] = lambda: None,
) -> Candidate:
    """What the document says of one candidate; `reason` for one that lost. `ahead` gives what is known of it already,
    as of one that is not the best."""
    known = judgement.sections or ahead()
    told = known or sections_of(task, judgement, lost=reason is not None, best=best, explain=explain)
    details = task.details(judgement, lost=False, best=True) if best and known else told.details
    return Candidate(
        strategy=task.choice(judgement),
        verdict="no" if reason is not None else judgement.verdict,  # type: ignore[arg-type]
        memory=told.memory,
        speed=told.speed,
        reason=reason,
        command=details.command,
        units=details.units,
        chosen=details.chosen,
        explain=told.explain,
        placement=details.placement,
        inference=details.inference,
        stages=details.stages,
        ranks=details.ranks,
        crowded=details.crowded,
        serving=details.serving,
        recipe=details.recipe,
        several=details.several,
        conditions=() if reason is not None else judgement.conditions,
        on_front=on_front if judgement.verdict == "fits" and reason is None else None,
    )


def sections_of(task: Task[F, J], judgement: J, *, lost: bool, best: bool = False, explain: int = 0) -> Sections:
    """What is said of a candidate alone; `lost` of one that was rejected."""
    counted = not judgement.states_only
    return Sections(
        memory=memory_figures(judgement, task.host(judgement)) if counted else None,
        speed=task.speed(judgement) if counted else None,
        details=task.details(judgement, lost=lost, best=best),
        explain=tensor_lines(judgement, explain) if explain and counted else None,
    )


def device_prices(cluster: Cluster) -> tuple[DevicePrice, ...]:
    """What others rent one of its devices for, cheapest first; of a machine known by name its own price alone."""
    return tuple(
        DevicePrice(usd_per_hour=price.usd_per_hour, provider=price.provider, date=price.date, source=price.source)
        for price in cluster.prices
    )


def model_facts(source: ModelSource, spec: ModelSpec) -> ModelFacts:
    """The model section."""
    stored = source.stored
    return ModelFacts(
        id=source.id,
        class_name=spec.class_name,
        model_type=spec.model_type,
        kind=spec.kind,
        parameters=spec.num_parameters,
        trainable_parameters=spec.trainable_parameters,
        config_digest=source.digest,
        source=source.kind,
        revision=source.revision,
        max_positions=spec.max_positions,
        vocab_size=spec.vocab_size,
        has_sequence=spec.has_sequence,
        stored=None
        if stored is None
        else StoredFacts(parameters=stored.parameters, bytes=stored.bytes, by_dtype=dict(stored.by_dtype)),
        notes=(*source.notes, *spec.notes),
    )


def memory_figures(use: DeviceUse, host: HostFigures | None) -> MemoryFigures:
    """The memory section: what a rank takes of its device."""
    profile = use.profile
    terms = {term.name: term for term in use.terms}
    return MemoryFigures(
        peak_allocated_bytes=profile.peak_allocated_bytes,
        peak_reserved_bytes=use.simulated.reserved_bytes if use.simulated else None,
        device_used_bytes=use.used_bytes,
        device_used_low_bytes=use.used_low_bytes,
        device_used_high_bytes=use.used_high_bytes,
        capacity_bytes=use.capacity_bytes,
        phase_of_peak=str(profile.phase_of_peak),
        at_peak=AtPeak(**{str(category): size for category, size in profile.at_peak.items()}),
        outside_allocator=OutsideAllocator(cuda_context=terms["CUDA context"].expected, nccl=terms["NCCL"].expected),
        uncertain=tuple(uncertain(term) for term in (*_cached(use), *use.terms) if term.high),
        at_rest_bytes=profile.at_rest_bytes,
        phase_peaks={str(phase): size for phase, size in profile.phase_peaks.items()},
        num_alloc_retries=use.simulated.retries if use.simulated else 0,
        host_bytes=use.host_bytes,
        nvme_bytes=use.nvme_bytes,
        host=host,
    )


def _cached(use: DeviceUse) -> tuple[Term, ...]:
    return (use.cached,) if use.cached else ()


def uncertain(term: Term) -> UncertainTerm:
    return UncertainTerm(
        name=term.name,
        bytes=term.expected,
        low_bytes=term.low,
        high_bytes=term.high,
        basis=term.basis,  # type: ignore[arg-type]
        source=term.source or None,
    )


_INDEX = re.compile(r"(?<=\.)\d+(?=\.|$)")
_SHAPE = re.compile(r"\[([\d, ]*)\] (\w+)")


def tensor_lines(
    judgement: Judgement, limit: int | None = None, blocks: IntArray | None = None
) -> tuple[TensorLine, ...]:
    """The largest tensors at the peak, equal ones of repeated blocks on one line; `blocks` as in `measure`."""
    phase = str(judgement.profile.phase_of_peak)
    lines: dict[tuple[str, ...], list[StandingTensor]] = {}
    for tensor in judgement.standing or standing(judgement.stream, judgement.replayed, blocks=blocks):
        key = (
            str(tensor.category),
            _INDEX.sub("*", tensor.module),
            tensor.operator,
            tensor.shape,
            tensor.basis,
            tensor.origin,
        )
        lines.setdefault(key, []).append(tensor)
    merged = [_line(key, tensors, phase) for key, tensors in lines.items()]
    return tuple(sorted(merged, key=lambda line: -line.bytes)[:limit])


def _line(key: tuple[str, ...], tensors: list[StandingTensor], phase: str) -> TensorLine:
    category, module, operator, shape, basis, origin = key
    parsed = _SHAPE.fullmatch(shape)
    sizes = tuple(int(size) for size in parsed.group(1).split(",") if size.strip()) if parsed else ()
    return TensorLine(
        bytes=sum(tensor.nbytes for tensor in tensors),
        count=len(tensors),
        category=category,
        module=module,
        operator=operator,
        shape=sizes,
        dtype=parsed.group(2) if parsed else "",
        phase=phase,
        basis=basis,  # type: ignore[arg-type]
        origin=origin or None,
    )
