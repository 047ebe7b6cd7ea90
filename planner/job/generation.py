"""Runs `--task infer` from words to a plan document: imported only when no kept plan answers."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.infer.document import document
from gpu_plan.planner.infer.evaluate import GenerationEvaluator, InferJudgement
from gpu_plan.planner.infer.limits import limits
from gpu_plan.planner.infer.nearest import nearest_change
from gpu_plan.planner.infer.search import Found, search
from gpu_plan.planner.memory.allocator.replay import AllocatorResult, simulate
from gpu_plan.planner.memory.snapshot import snapshot
from gpu_plan.planner.memory.timeline import timeline
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.generation import InferGiven, make_workload, quantisation, read_given, weight_type
from gpu_plan.planner.options.request import Answer, Note, Request
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.plan.timeline import Timeline
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.generation.generations import Generations
from gpu_plan.planner.trace.generation.provider import GenerationProvider
from gpu_plan.planner.workload.generation import CacheKind, InferWorkload

OpenGenerations = Callable[[Request, Cluster, ModelSource, InferGiven, Note], Generations]
"""Gives the generations of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generating:
    """A request with what it takes to judge it."""

    spec: ModelSpec
    workload: InferWorkload
    evaluator: GenerationEvaluator


def plan_generation(
    request: Request, cluster: Cluster, source: ModelSource, note: Note, open_provider: OpenGenerations | None = None
) -> Answer:
    """Searches, and says what was found.

    Without garbage collection meanwhile: it would walk everything that torch's import made, again and again.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _plan(request, cluster, source, note, open_provider or generation_provider)
    finally:
        if collects:
            gc.enable()


def generation_provider(
    request: Request, cluster: Cluster, source: ModelSource, given: InferGiven, note: Note
) -> GenerationProvider:
    """Of a model whose `generate` is traced: the options say how it is loaded."""
    return GenerationProvider(
        source=source,
        device=device_kind(cluster.gpu),
        attention=given.attention or "sdpa",
        dtype=weight_type(given.precision, source)[0].dtype,
        scheme=quantisation(given, source),
        use_cache=request.use_cache,
        note=note,
    )


def generating(
    request: Request, cluster: Cluster, source: ModelSource, note: Note, open_provider: OpenGenerations
) -> Generating:
    """The request, read and checked. UsageError for what makes no sense."""
    given = read_given(dict(request.words), request.settings)
    provider = open_provider(request, cluster, source, given, note)
    spec = provider.spec()
    dtype = weight_type(given.precision, source)
    workload = make_workload(given, request.pinned, cluster, spec, dtype, provider.scheme)
    evaluator = GenerationEvaluator(
        provider=provider,
        workload=workload,
        cluster=cluster,
        speed=RooflineModel(),
        encoder_decoder=spec.kind == "encoder-decoder",
    )
    return Generating(spec=spec, workload=workload, evaluator=evaluator)


def _plan(
    request: Request, cluster: Cluster, source: ModelSource, note: Note, open_provider: OpenGenerations
) -> Answer:
    job = generating(request, cluster, source, note, open_provider)
    spec, workload, evaluator = job.spec, job.workload, job.evaluator
    found = search(evaluator)
    best = found.plans[0] if found.plans and found.plans[0].verdict == "fits" else None
    told = document(
        found,
        source=source,
        spec=spec,
        cluster=cluster,
        workload=workload,
        command=request.command,
        versions=versions(),
        assumptions=_assumptions(workload, found, evaluator.provider),
        warnings=_warnings(workload, cluster, source),
        change=None if best is not None or not request.suggest else nearest_change(evaluator, found),
        limits=None
        if best is None or best.cpu_bytes or best.disk_bytes
        else limits(evaluator, best, spec.max_positions),
        explain=25 if request.explain else 0,
    )
    return Answer(
        document=told,
        snapshot=_snapshot(found) if request.snapshot else None,
        timeline=_timeline(found, spec.id) if request.plot or request.timeline else None,
    )


def _run(judgement: InferJudgement) -> AllocatorResult:
    return simulate(judgement.stream, 1)


def _snapshot(found: Found) -> Mapping[str, object] | None:
    """The predicted memory snapshot of the best plan; None where nothing fits."""
    return snapshot(found.plans[0].stream, 1, _run(found.plans[0])) if found.plans else None


def _timeline(found: Found, model: str) -> Timeline | None:
    """Prefill and decode of the best plan; None likewise."""
    if not found.plans:
        return None
    best = found.plans[0]
    title = f"{model}: {best.layout.title}"
    return timeline(best.stream, 1, _run(best), title=title, capacity=best.capacity_bytes)


def _assumptions(workload: InferWorkload, found: Found, provider: Generations) -> tuple[Assumption, ...]:
    fixed = [
        Assumption(text="prompts of a batch are equally long: no padding, no attention mask", basis="assumed"),
        Assumption(text="greedy decoding, one sequence per prompt; no sample ends early", basis="assumed"),
        Assumption(
            text="weights are loaded by transformers' from_pretrained, which first takes their bytes as one block",
            basis="source",
        ),
    ]
    if workload.new_tokens == 1:
        fixed.append(
            Assumption(text="figures are at full context: the decode step that fills it is counted", basis="traced")
        )
    if workload.cache is CacheKind.STATIC:
        fixed.append(
            Assumption(
                text="generate compiles decoding with a static cache on a GPU; counted is the step as written",
                basis="assumed",
            )
        )
    sites, notes = provider.told()
    told = [
        Assumption(text=f"host read {site}", basis="traced" if "follows from" in site else "assumed") for site in sites
    ]
    best = found.plans[0].notes if found.plans else ()
    return (
        *fixed,
        *told,
        *(Assumption(text=text, basis="traced") for text in notes),
        *(Assumption(text=text, basis="source") for text in best),
    )


def _warnings(workload: InferWorkload, cluster: Cluster, source: ModelSource) -> tuple[str, ...]:
    found: list[str] = []
    suits = workload.precision.traits.weights_without_bf16
    if suits and not cluster.gpu.supports_bf16:
        found.append(
            f"{cluster.gpu.short} has no bfloat16 units: it runs emulated and slowly; --precision {suits} suits it"
        )
    return tuple(found)
