"""`--task infer`: a generation, prepared for the search."""

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.job.speed import measured_here, speed_for
from gpu_plan.planner.model.source.headers import differences
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec, built_parameters
from gpu_plan.planner.options.generation import (
    InferGiven,
    make_workload,
    named_type,
    quantisation,
    read_given,
    weight_type,
)
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.generation.evaluate import GenerationEvaluator
from gpu_plan.planner.search.generation.task import GenerationTask
from gpu_plan.planner.search.setting_notes import setting_notes
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.generation.provider import GenerationProvider
from gpu_plan.planner.workload.generation import CacheKind, InferWorkload


def prepare(request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers) -> Prepared:
    """The generation that the request describes. UsageError for what makes no sense."""
    given = read_given(dict(request.words), request.settings)
    provider = (openers.generations or generation_provider)(request, cluster, source, given, note)
    spec = provider.spec()
    dtype = weight_type(given.precision, source)
    workload = make_workload(given, request.pinned, cluster, spec, dtype, provider.scheme)
    evaluator = GenerationEvaluator(
        provider=provider,
        workload=workload,
        cluster=cluster,
        speed=speed_for(cluster, note),
        encoder_decoder=spec.kind == "encoder-decoder",
    )
    warned = _warnings(workload, cluster, spec, source)
    return Prepared(
        task=GenerationTask(evaluator, command=request.command, bounded=True),
        spec=spec,
        fixed=(*_untold(given, workload, source), *_fixed(workload)),
        assumptions=provider.assumptions,
        settings=(*measured_here(cluster), *setting_notes(workload, cluster)),
        warnings=lambda found: warned,
    )


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


def _untold(given: InferGiven, workload: InferWorkload, source: ModelSource) -> tuple[Assumption, ...]:
    """The type of the weights, where nothing says it."""
    if given.precision is not None or source.config is None or named_type(source) is not None:
        return ()
    text = (
        f"the config names no type and no checkpoint is at hand: weights are planned in {workload.precision}, as"
        " from_pretrained loads them where the checkpoint names none either; many are stored in 16 bits"
        " (--precision bf16)"
    )
    return (Assumption(text=text, basis="assumed"),)


def _fixed(workload: InferWorkload) -> tuple[Assumption, ...]:
    """What every plan of a generation rests on."""
    found = [
        Assumption(text="prompts of a batch are equally long: no padding, no attention mask", basis="assumed"),
        Assumption(text="greedy decoding, one sequence per prompt; no sample ends early", basis="assumed"),
        Assumption(
            text="weights are loaded by transformers' from_pretrained, which first takes their bytes as one block",
            basis="source",
        ),
    ]
    if workload.new_tokens == 1:
        found.append(
            Assumption(text="figures are at full context: the decode step that fills it is counted", basis="traced")
        )
    if workload.cache is CacheKind.STATIC:
        found.append(
            Assumption(
                text="generate compiles decoding with a static cache on a GPU; counted is the step as written",
                basis="assumed",
            )
        )
    return tuple(found)


def _warnings(workload: InferWorkload, cluster: Cluster, spec: ModelSpec, source: ModelSource) -> tuple[str, ...]:
    found: list[str] = []
    suits = workload.precision.traits.weights_without_bf16
    if suits and not cluster.gpu.supports_bf16:
        found.append(
            f"{cluster.gpu.short} has no bfloat16 units: it runs emulated and slowly; --precision {suits} suits it"
        )
    if source.stored is not None and workload.quantize == "none":
        found += differences(source.stored, built_parameters(spec))
    return tuple(found)
