"""Turns what a search found into the plan document."""

import re
from collections.abc import Mapping

from gpu_plan.planner.hardware.cluster import Cluster, cluster_document
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.memory.profile import StandingTensor, standing
from gpu_plan.planner.memory.stream import RankStream
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plan.document import (
    Assumption,
    AtPeak,
    Candidate,
    DevicePrice,
    HostFigures,
    MemoryFigures,
    ModelFacts,
    OutsideAllocator,
    PlanDocument,
    SpeedFigures,
    StoredFacts,
    StrategyChoice,
    TensorLine,
    UncertainTerm,
    workload_document,
)
from gpu_plan.planner.search.command import launch_command, wrapped_classes
from gpu_plan.planner.search.device_use import DeviceUse
from gpu_plan.planner.search.evaluate import Judgement
from gpu_plan.planner.search.notes.settings import setting_notes
from gpu_plan.planner.search.search import Found
from gpu_plan.planner.speed.model import StepTime
from gpu_plan.planner.trace.events import IntArray
from gpu_plan.planner.workload.training import Workload


def document(
    found: Found,
    *,
    source: ModelSource,
    spec: ModelSpec,
    cluster: Cluster,
    workload: Workload,
    command: str,
    versions: Mapping[str, str],
    assumptions: tuple[Assumption, ...],
    warnings: tuple[str, ...],
    change: str | None,
    explain: int = 0,
) -> PlanDocument:
    """The document of one finished search; `explain` is how many kinds of tensors at the peak are named."""
    return PlanDocument(
        command=command,
        created_with=dict(versions),
        model=model_facts(source, spec),
        cluster=cluster_document(cluster),
        workload=workload_document(workload),
        plans=tuple(candidate_of(j, spec, cluster, workload, explain=explain) for j in found.plans),
        rejected=tuple(
            candidate_of(loser.judgement, spec, cluster, workload, loser.reason, explain=explain)
            for loser in found.rejected
        ),
        assumptions=(*assumptions, *setting_notes(workload, cluster)),
        warnings=warnings,
        nearest_change=change,
        prices=device_prices(cluster),
    )


def device_prices(cluster: Cluster) -> tuple[DevicePrice, ...]:
    """What others rent one of its devices for, cheapest first."""
    prices = (
        DevicePrice(usd_per_hour=price.usd_per_hour, provider=price.provider, date=price.date, source=price.source)
        for price in cluster.gpu.prices
    )
    return tuple(sorted(prices, key=lambda price: price.usd_per_hour))


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


def candidate_of(
    judgement: Judgement,
    spec: ModelSpec,
    cluster: Cluster,
    workload: Workload,
    reason: str | None = None,
    *,
    explain: int,
) -> Candidate:
    """What the document says of one candidate; `reason` for one that lost."""
    family, batch = judgement.family, judgement.batch
    verdict = "no" if reason is not None else judgement.verdict
    return Candidate(
        strategy=StrategyChoice(
            name=family.strategy.name,
            data_parallel=cluster.world_size,
            zero_stage=family.strategy.traits.stage,
            offload=str(family.offload),
            micro_batch_size=batch.micro_batch,
            gradient_accumulation_steps=batch.accumulation_steps,
            checkpointing=str(family.checkpointing),
            precision=str(workload.precision),
        ),
        verdict=verdict,  # type: ignore[arg-type]
        memory=None if judgement.states_only else memory_figures(judgement, _host(judgement)),
        speed=None if judgement.states_only else _speed(judgement.time, spec.has_sequence),
        reason=reason,
        command=launch_command(judgement, workload, cluster, _script(spec)) if reason is None else None,
        units=() if judgement.states_only else wrapped_classes(judgement),
        chosen=dict(judgement.plan.chosen),
        explain=tensor_lines(judgement, explain) if explain and not judgement.states_only else None,
    )


def _script(spec: ModelSpec) -> str | None:
    """The training script that is planned, where one is."""
    return spec.id if spec.id.endswith(".py") else None


def memory_figures(use: DeviceUse, host: HostFigures | None) -> MemoryFigures:
    """The memory section: what a rank takes of its device."""
    profile = use.profile
    terms = {term.name: term for term in use.terms}
    return MemoryFigures(
        peak_allocated_bytes=profile.peak_allocated_bytes,
        peak_reserved_bytes=use.simulated.reserved_bytes if use.simulated else None,
        device_used_bytes=use.expected_bytes,
        device_used_low_bytes=use.used_low_bytes,
        device_used_high_bytes=use.used_high_bytes,
        capacity_bytes=use.capacity_bytes,
        phase_of_peak=str(profile.phase_of_peak),
        at_peak=AtPeak(**{str(category): size for category, size in profile.at_peak.items()}),
        outside_allocator=OutsideAllocator(cuda_context=terms["CUDA context"].expected, nccl=terms["NCCL"].expected),
        uncertain=tuple(_uncertain(term) for term in (*_cached(use), *use.terms) if term.high),
        at_rest_bytes=profile.at_rest_bytes,
        phase_peaks={str(phase): size for phase, size in profile.phase_peaks.items()},
        num_alloc_retries=use.simulated.retries if use.simulated else 0,
        host_bytes=use.host_bytes,
        nvme_bytes=use.nvme_bytes,
        host=host,
    )


def _host(judgement: Judgement) -> HostFigures | None:
    if judgement.shares_host:
        return None
    expected = {f"{term.name}_bytes": term.expected for term in judgement.host_terms}
    return HostFigures(**expected, terms=tuple(_uncertain(term) for term in judgement.host_terms))


def _cached(use: DeviceUse) -> tuple[Term, ...]:
    return (use.cached,) if use.cached else ()


def _uncertain(term: Term) -> UncertainTerm:
    return UncertainTerm(
        name=term.name,
        bytes=term.expected,
        low_bytes=term.low,
        high_bytes=term.high,
        basis=term.basis,  # type: ignore[arg-type]
        source=term.source or None,
    )


def _speed(time: StepTime, has_sequence: bool) -> SpeedFigures:
    return SpeedFigures(
        step_seconds=time.step_seconds,
        step_seconds_low=time.low_seconds,
        step_seconds_high=time.high_seconds,
        tokens_per_second_per_gpu=time.tokens_per_second_per_gpu if has_sequence else None,
        samples_per_second=time.samples_per_second,
        mfu=time.mfu,
        basis=time.basis,  # type: ignore[arg-type]
        parts={
            "forward": time.forward_seconds,
            "backward": time.backward_seconds,
            "recompute": time.recompute_seconds,
            "optimizer": time.optimizer_seconds,
            "communication": time.communication_seconds,
            "host_transfer": time.host_transfer_seconds,
            "exposed_communication": time.exposed_communication_seconds,
        },
    )


_INDEX = re.compile(r"(?<=\.)\d+(?=\.|$)")
_SHAPE = re.compile(r"\[([\d, ]*)\] (\w+)")


def tensor_lines(
    judgement: Judgement, limit: int | None = None, blocks: IntArray | None = None
) -> tuple[TensorLine, ...]:
    """The largest tensors at the peak, equal ones of repeated blocks on one line; `blocks` as in `measure`."""
    stream, micro_batch = judgement.plan.stream, judgement.batch.micro_batch
    return standing_lines(stream, micro_batch, str(judgement.profile.phase_of_peak), limit, blocks)


def standing_lines(
    stream: RankStream, micro_batch: int, phase: str, limit: int | None = None, blocks: IntArray | None = None
) -> tuple[TensorLine, ...]:
    """The same of any rank's stream; `phase` is that of its peak."""
    lines: dict[tuple[str, ...], list[StandingTensor]] = {}
    for tensor in standing(stream, micro_batch, blocks=blocks):
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
