"""`--task infer --server`: a server's own arithmetic, prepared for the search."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Prepared
from gpu_plan.planner.job.speed import speed_for
from gpu_plan.planner.model.quantization import parse_quantize
from gpu_plan.planner.model.quantization.configs import scheme_of
from gpu_plan.planner.model.quantization.scheme import FP8_CAPABILITY
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.generation import weight_type
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.serve.read import ServeGiven, read_serving, serve_workload
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.serving.task import ServingEvaluator, ServingTask
from gpu_plan.planner.search.setting_notes import setting_notes
from gpu_plan.planner.serving.known import find_server
from gpu_plan.planner.serving.server import Server
from gpu_plan.planner.serving.states import keeps_known_states
from gpu_plan.planner.trace.device import DeviceKind, device_kind
from gpu_plan.planner.trace.generation.provider import GenerationProvider
from gpu_plan.planner.workload.precisions import DEFAULT_WEIGHTS, WeightType
from gpu_plan.planner.workload.settled import Basis

_OTHER_STATE = frozenset({"hybrid", "state-space", "encoder-decoder"})
"""Kinds of models that keep something else than keys and values of every token."""
_DRAWN = (("snapshot", "--snapshot"), ("plot", "--plot"), ("schedule", "--timeline"))

_MARLIN = (8, 0)
"""Compute capability from which Marlin's kernel for FP8 weights runs."""


def prepare(request: Request, cluster: Cluster, source: ModelSource, note: Note) -> Prepared:
    """The server that the request describes. UsageError for what makes no sense."""
    given = read_serving(dict(request.words), request.settings)
    for name, option in _DRAWN:
        if getattr(request, name):
            raise UsageError(
                f"{option} shows what a simulated allocator does; a server's memory is computed: leave it out"
            )
    if source.config is None:
        raise UsageError(
            f"--server {given.server} serves models of transformers: {source.id} is not one (name an id or a folder)"
        )
    scheme = parse_quantize(given.quantize) if given.quantize is not None else scheme_of(source.config)
    dtype = _computed(given, cluster, source)
    provider = GenerationProvider(
        source=source,
        device=_packing(device_kind(cluster.gpu)),
        attention="sdpa",
        dtype=dtype[0].dtype,
        scheme=scheme,
        use_cache=request.use_cache,
        note=note,
    )
    spec = provider.spec()
    config = provider.text_config()
    _check_states(spec, config, find_server(given.server))
    workload = serve_workload(given, request.pinned, cluster, spec, dtype, scheme)
    evaluator = ServingEvaluator(
        workload=workload,
        cluster=cluster,
        speed=speed_for(cluster, note),
        spec=replace(spec, parameters=(*spec.parameters, *provider.packed())),
        config=config,
        element_bytes=element_bits(workload.precision.dtype) // 8,
    )
    return Prepared(
        task=ServingTask(evaluator, model=request.model),
        spec=spec,
        fixed=_fixed(spec, find_server(given.server)),
        assumptions=lambda: ([], []),
        settings=setting_notes(workload, cluster),
        replayed=False,
    )


def _check_states(spec: ModelSpec, config: Mapping[str, Any], server: Server) -> None:
    """UsageError for a model that keeps something of a request that is not computed."""
    if spec.kind not in _OTHER_STATE or (server.states and keeps_known_states(config)):
        return
    known = "attention in every layer"
    if server.states:
        known += ", Mamba layers or gated delta nets"
    raise UsageError(
        f"--server {server.word}: {spec.id} is of the kind {spec.kind}, and what {server.title} keeps of its requests"
        f" is not computed in this version: give a decoder with {known}"
    )


def _packing(device: DeviceKind) -> DeviceKind:
    """A device that keeps FP8 weights packed: before compute capability 8.9 servers multiply them by Marlin's kernel,
    where transformers dequantises (vllm/model_executor/layers/quantization/fp8.py: Fp8Config.get_min_capability,
    Fp8LinearMethod.use_marlin; sglang/srt/layers/quantization/fp8_utils.py: can_auto_enable_marlin_fp8). No step is
    replayed here: what is asked of the device is how it holds weights."""
    capability = device.capability
    if capability is None or not _MARLIN <= capability < FP8_CAPABILITY:
        return device
    return replace(device, capability=FP8_CAPABILITY)


def _computed(given: ServeGiven, cluster: Cluster, source: ModelSource) -> tuple[WeightType, Basis]:
    """Type of the computation: what is stored in fp32 is served in 16 bits (config/model.py, _resolve_auto_dtype)."""
    found, basis = weight_type(given.precision, source)
    if basis == "given" or element_bits(found.dtype) <= 16:
        return found, basis
    suits = None if cluster.gpu.supports_bf16 else DEFAULT_WEIGHTS.traits.weights_without_bf16
    return DEFAULT_WEIGHTS if suits is None else WeightType(suits), basis


def _fixed(spec: ModelSpec, server: Server) -> tuple[Assumption, ...]:
    texts = [
        (f"{server.title} {server.version} as its source has it, computed and not run: {server.knows}", "source"),
        ("requests share no prefix, and each takes its full context", "assumed"),
        (
            "speed is what reading weights and cache and joining ranks take: no server is faster, most are slower",
            "assumed",
        ),
    ]
    if spec.kind == "multimodal":
        texts.append(("text alone is served: the encoder's batch and its cache are not counted", "assumed"))
    return tuple(Assumption(text=text, basis=basis) for text, basis in texts)  # type: ignore[arg-type]
