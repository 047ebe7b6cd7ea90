"""A training job: a model by name, or a training script, prepared for the search."""

from functools import partial
from typing import Any

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.job.speed import measured_here, speed_for
from gpu_plan.planner.model.config_reader import parse_config
from gpu_plan.planner.model.source.headers import differences
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec, built_parameters
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.training.adapters import adapter_of
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.options.training.workload import make_workload
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.search import Found
from gpu_plan.planner.search.setting_notes import setting_notes
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.notes.experts import unpacked_experts
from gpu_plan.planner.search.training.notes.samples import fewer_samples
from gpu_plan.planner.search.training.notes.settings import training_notes
from gpu_plan.planner.search.training.notes.stack import stack_notes
from gpu_plan.planner.search.training.piped.judge import bubble_warnings
from gpu_plan.planner.search.training.ranks.spanning import spanning_warnings
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import Provider, TraceProvider
from gpu_plan.planner.workload.training import Workload


def prepare(request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers) -> Prepared:
    """The job that the request describes, or that its script does. UsageError for what makes no sense."""
    given = read_given(dict(request.words), request.settings)
    provider: Provider
    if source.kind == "script":
        from gpu_plan.planner.capture.job import captured_job

        provider, spec, workload = captured_job(request, cluster, source, given, note, openers.captures)
    else:
        provider = (openers.traces or trace_provider)(request, cluster, source, given, note)
        spec = provider.spec()
        workload = make_workload(given, request.pinned, cluster, spec)
    evaluator = Evaluator(
        provider=provider,
        workload=workload,
        cluster=cluster,
        speed=speed_for(cluster, note),
        host_limit=cluster.host_ram_bytes,
        stored=None if source.stored is None else frozenset(source.stored.by_dtype),
        config=_config_of(source, provider),
    )
    if source.kind == "script":
        # What a capture saw takes what reads captures.
        from gpu_plan.planner.job.rollouts import with_rollouts

        evaluator = with_rollouts(evaluator)
    warned = _warnings(workload, cluster, spec, source)

    def warnings(found: Found[StepJudgement]) -> tuple[str, ...]:
        against = _against_script(request, cluster, spec, workload, found, note)
        waiting = bubble_warnings((p.batch, p.piped) for p in found.plans)
        shared = fewer_samples(workload, cluster)
        return (*warned, *against, *waiting, *shared, *spanning_warnings(found.plans, cluster))

    return Prepared(
        task=TrainingTask(evaluator),
        spec=spec,
        fixed=(
            *_batches(provider, workload, source),
            *_overlap(cluster),
            *_clipping(workload),
        ),
        assumptions=lambda: _assumptions(provider, spec),
        settings=(
            *measured_here(cluster),
            *setting_notes(workload, cluster),
            *training_notes(workload),
            *stack_notes(workload),
        ),
        headline=unpacked_experts(spec, workload),
        warnings=warnings,
        places=partial(_places, provider, source),
    )


def _config_of(source: ModelSource, provider: Provider) -> dict[str, Any] | None:
    """The model's configuration; of a script, that of the model which it was seen to train."""
    if source.kind != "script":
        return source.config
    from gpu_plan.planner.capture.provider import CapturedProvider

    known = provider.facts() if isinstance(provider, CapturedProvider) else None
    return parse_config(known.config, source.id) if known is not None and known.config and known.models == 1 else None


def _batches(provider: Provider, workload: Workload, source: ModelSource) -> tuple[Assumption, ...]:
    """What the batches look like: a script's are as its own loader gave them, from data that may be stand-ins."""
    if source.kind == "script":
        from gpu_plan.planner.capture.provider import CapturedProvider
        from gpu_plan.planner.capture.workload import batch_in_words

        if isinstance(provider, CapturedProvider) and provider.facts().batch:
            facts = provider.facts()
            stands = tuple(Assumption(text=line, basis="assumed") for line in facts.standins)
            return (*stands, Assumption(text=batch_in_words(facts), basis="traced"))
    if not provider.spec().has_sequence:
        return ()
    return (Assumption(text=_data(workload), basis="assumed"),)


def _assumptions(provider: Provider, spec: ModelSpec) -> tuple[list[str], list[str]]:
    sites, notes = provider.assumptions()
    return sites, [*notes, *spec.notes]


def trace_provider(request: Request, cluster: Cluster, source: ModelSource, given: Given, note: Note) -> TraceProvider:
    """Of a model by name: its own class is traced, and the options say how."""
    return TraceProvider(
        source=source,
        device=device_kind(cluster.gpu),
        attention=given.attention or "sdpa",
        adapter=adapter_of(given, cluster),
        use_cache=request.use_cache,
        script_seconds=request.script_seconds,
        unwalled=request.unwalled,
        note=note,
    )


def _places(provider: Provider, source: ModelSource) -> dict[str, str]:
    if source.kind != "script":
        return {}
    from gpu_plan.planner.capture.provider import CapturedProvider

    return provider.places() if isinstance(provider, CapturedProvider) else {}


def _against_script(
    request: Request, cluster: Cluster, spec: ModelSpec, workload: Workload, found: Found[StepJudgement], note: Note
) -> tuple[str, ...]:
    """Where the script that is to train the model does otherwise."""
    if request.script is None:
        return ()
    from gpu_plan.planner.capture.compare import script_differences

    return script_differences(request, cluster, spec, workload, found, note)


def _warnings(workload: Workload, cluster: Cluster, spec: ModelSpec, source: ModelSource) -> tuple[str, ...]:
    found = []
    if spec.has_sequence and spec.max_positions is not None and workload.seq_len > spec.max_positions:
        found.append(f"--seq-len {workload.seq_len} is longer than the {spec.max_positions} positions of {spec.id}")
    suits = workload.precision.traits.without_bf16
    if suits and not cluster.gpu.supports_bf16:
        found.append(f"{cluster.gpu.short} has no bfloat16 units: it runs emulated and slowly; {suits} suits it")
    if cluster.gpu.is_cpu and workload.strategy is not None and not traits_of(workload.strategy).cpu_ranks:
        found.append(
            f"--strategy {workload.strategy} on CPU processes: Accelerate has it for GPUs only; `plan --execute` runs"
            " it over gloo by replacing a few functions in each process, for trying things out"
        )
    if workload.precision.is_float8 and cluster.gpu.is_cpu:
        found.append(
            f"--precision {workload.precision} on CPU processes: torchao emulates float8 products in float32, which"
            " saves neither time nor memory: for trying the recipe out"
        )
    if workload.stack.traits.fails_scaling(workload.precision, workload.peft):
        found.append(
            f"stack {workload.stack}: {workload.stack.traits.title} makes adapters around a quantised base bf16, and"
            f" torch's GradScaler, which {workload.precision} needs, ends with an error at bf16 gradients"
            " (_amp_foreach_non_finite_check_and_unscale_cuda): --stack unsloth keeps them in fp32"
        )
    if source.stored is not None and not workload.peft.quantises:
        found += differences(source.stored, built_parameters(spec))
    return tuple(found)


def _overlap(cluster: Cluster) -> tuple[Assumption, ...]:
    """Of several devices, which have something to send."""
    if cluster.world_size == 1:
        return ()
    text = "communication overlaps with computation wherever the code issues it early"
    return (Assumption(text=text, basis="assumed"),)


def _clipping(workload: Workload) -> tuple[Assumption, ...]:
    """Said where it is not known whether the script clips: what is counted is not what a run is told."""
    if workload.max_grad_norm is not None or not workload.clipping:
        return ()
    text = (
        "temporaries of gradient clipping are counted, since most scripts clip; a run is told to clip only by"
        " --set clip.max_norm=NORM (0: not counted)"
    )
    return (Assumption(text=text, basis="assumed"),)


def _data(workload: Workload) -> str:
    """What the batches look like."""
    padding = workload.setting("data.padding", "none")
    if padding == "none":
        return "sequences are full: no padding, no packing, no attention mask"
    if padding == "longest":
        return (
            "samples are padded to the longest of their micro batch, which is full: from two samples on there is a mask"
        )
    return f"{float(padding):.0%} of every sample is padding, so there is an attention mask"
