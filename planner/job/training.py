"""The part of the main job that searches: imported only when no kept plan answers."""

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.source.headers import differences
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec, built_parameters
from gpu_plan.planner.options.request import Answer, Note, Request
from gpu_plan.planner.options.training import Given, Options, adapter_of, make_workload, read_given
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.conversions import widened
from gpu_plan.planner.search.document import document
from gpu_plan.planner.search.evaluate import Evaluator
from gpu_plan.planner.search.nearest_change import nearest_change
from gpu_plan.planner.search.predicted import predicted_snapshot, predicted_timeline
from gpu_plan.planner.search.reasons import title
from gpu_plan.planner.search.search import Found, search
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import Provider, TraceProvider
from gpu_plan.planner.workload.training import Workload

if TYPE_CHECKING:
    from gpu_plan.planner.capture.job import OpenCaptures

OpenProvider = Callable[[Request, Cluster, ModelSource, Given, Note], Provider]
"""Gives the traces of a model by name."""


def plan_from_scratch(
    request: Request,
    cluster: Cluster,
    source: ModelSource,
    note: Note,
    open_provider: OpenProvider | None = None,
    open_captures: "OpenCaptures | None" = None,
) -> Answer:
    """Searches, and says what was found.

    Without garbage collection meanwhile: it would walk everything that torch's import made, again and again.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _search(request, cluster, source, note, open_provider or trace_provider, open_captures)
    finally:
        if collects:
            gc.enable()


def _search(
    request: Request,
    cluster: Cluster,
    source: ModelSource,
    note: Note,
    open_provider: OpenProvider,
    open_captures: "OpenCaptures | None",
) -> Answer:
    options = Options(dict(request.words))
    given = read_given(options, request.settings)
    if source.kind == "script":
        provider, spec, workload = _of_script(request, cluster, source, given, note, open_captures)
    else:
        provider = open_provider(request, cluster, source, given, note)
        spec = provider.spec()
        workload = make_workload(given, request.pinned, cluster, spec)
    evaluator = Evaluator(
        provider=provider,
        workload=workload,
        cluster=cluster,
        speed=RooflineModel(),
        host_limit=cluster.host_ram_bytes,
        stored=None if source.stored is None else frozenset(source.stored.by_dtype),
    )
    found = search(evaluator, exhaustive=request.pinned)
    fits = any(judgement.verdict == "fits" for judgement in found.plans)
    sites, notes = provider.told()
    told = document(
        found,
        source=source,
        spec=spec,
        cluster=cluster,
        workload=workload,
        command=request.command,
        versions=versions(),
        assumptions=_plan_notes(found) + _assumptions(workload, sites, (*notes, *spec.notes)),
        warnings=_warnings(workload, cluster, spec, source)
        + _against_script(request, cluster, spec, workload, found, note),
        change=None if fits or not request.suggest else nearest_change(evaluator),
        explain=request.explained if request.explain else 0,
    )
    drawn = request.plot or (request.timeline and not cluster.gpu.is_cpu)
    return Answer(
        document=told,
        snapshot=predicted_snapshot(found, request.pinned) if request.snapshot else None,
        timeline=predicted_timeline(found, request.pinned, spec.id) if drawn else None,
        places=_places(provider) if source.kind == "script" else {},
        widened=widened(found) if request.follow else {},
    )


def trace_provider(request: Request, cluster: Cluster, source: ModelSource, given: Given, note: Note) -> TraceProvider:
    """Of a model by name: its own class is traced, and the options say how."""
    return TraceProvider(
        source=source,
        device=device_kind(cluster.gpu),
        attention=given.attention or "sdpa",
        adapter=adapter_of(given, cluster),
        use_cache=request.use_cache,
        note=note,
    )


def _of_script(
    request: Request,
    cluster: Cluster,
    source: ModelSource,
    given: Given,
    note: Note,
    open_captures: "OpenCaptures | None",
) -> tuple[Provider, ModelSpec, Workload]:
    """A training script: what it does is what is planned, where no option says otherwise."""
    from gpu_plan.planner.capture.job import captured_job

    return captured_job(request, cluster, source, given, note, open_captures)


def _places(provider: Provider) -> dict[str, str]:
    from gpu_plan.planner.capture.provider import CapturedProvider

    return provider.places() if isinstance(provider, CapturedProvider) else {}


def _against_script(
    request: Request, cluster: Cluster, spec: ModelSpec, workload: Workload, found: Found, note: Note
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
    if cluster.gpu.is_cpu and workload.strategy not in (None, "single", "ddp"):
        found.append(
            f"--strategy {workload.strategy} on CPU processes: Accelerate has it for GPUs only; `plan --execute` runs"
            " it over gloo by replacing a few functions in each process, for trying things out"
        )
    if workload.precision.is_float8 and cluster.gpu.is_cpu:
        found.append(
            f"--precision {workload.precision} on CPU processes: torchao emulates float8 products in float32, which"
            " saves neither time nor memory: for trying the recipe out"
        )
    if source.stored is not None and not workload.peft.quantises:
        found += differences(source.stored, built_parameters(spec))
    return tuple(found)


def _data(workload: Workload) -> str:
    """What the batches look like."""
    padding = workload.setting("data.padding", "none")
    if padding == "none":
        return "sequences are full: no padding, no packing, no attention mask"
    if padding == "longest":
        return "samples are padded to the longest of their micro batch, which is full: of two or more there is a mask"
    return f"{float(padding):.0%} of every sample is padding: an attention mask"


def _assumptions(workload: Workload, sites: Sequence[str], notes: Sequence[str]) -> tuple[Assumption, ...]:
    """What every plan of this version rests on, then what this model's trace was told."""
    fixed = (
        Assumption(text=_data(workload), basis="assumed"),
        Assumption(text="communication overlaps with computation wherever the code issues it early", basis="assumed"),
    )
    told = tuple(
        Assumption(text=f"host read {site}", basis="traced" if "follows from" in site else "assumed") for site in sites
    )
    return (*fixed, *told, *(Assumption(text=text, basis="traced") for text in notes))


def _plan_notes(found: Found) -> tuple[Assumption, ...]:
    """What the best plan's strategy rests on, read in its real code."""
    if not found.plans:
        return ()
    best = found.plans[0]
    return tuple(Assumption(text=f"{title(best)}: {note}", basis="source") for note in best.plan.notes)
