"""From option words to an InferWorkload: values checked, defaults filled, every origin noted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_plan.planner.errors import NotBuiltError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.quantization import Scheme, parse_quantize
from gpu_plan.planner.model.quantization.configs import scheme_of
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.options.settings import parse_settings
from gpu_plan.planner.options.values import choice, positive
from gpu_plan.planner.strategy.known import NOT_BUILT, known_traits
from gpu_plan.planner.workload.generation import MOST_TOKENS, CacheKind, CacheType, InferWorkload, WeightType
from gpu_plan.planner.workload.named import listed
from gpu_plan.planner.workload.precisions import PLAIN_WEIGHTS, Precision
from gpu_plan.planner.workload.settled import Basis
from gpu_plan.planner.workload.training import Attention

DEFAULT_CONTEXT = 4096
STRATEGIES = ("single", "replicas", "tp", "pp", "device-map")
"""Of inference: one GPU; whole models on several; tensor parallel; pipeline stages; modules over all devices."""
OFFLOADS = ("none", "all")

_TRAINING: Mapping[str, str] = {
    "optimizer": "",
    "checkpointing": "",
    "stack": "",
    "peft": "",
    "lora-rank": "",
    "lora-targets": "",
    "fused-loss": "",
    "grad-accum": "",
    "dp-replicate": "",
    "ep": "",
    "cp": "",
    "schedule": "",
    "vpp": "",
    "seq-len": ": use --context",
    "micro-batch": ": use --batch",
    "global-batch": ": use --batch",
}
"""Options of training, and what takes their place."""
_LATER_CACHES = ("int8", "int4", "int2")
_SETTINGS = ("alloc.", "memory.reserve", "cache.", "prefill.")
"""Those that say something about a generation."""

_WHERE = " for --task infer"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferGiven:
    """Option words as values; None where an option was not given."""

    precision: WeightType | None
    attention: Attention | None
    kv_dtype: CacheType | None
    quantize: str | None
    strategy: str | None
    offload: str | None
    context: int | None
    batch: int | None
    new_tokens: int | None
    tensor_parallel: int | None
    pipeline_parallel: int | None
    settings: tuple[tuple[str, str], ...]


def read_given(words: Mapping[str, str], settings: Sequence[str]) -> InferGiven:
    """What the words mean; UsageError in one line for every value that makes no sense, before any work is done."""
    for name, instead in _TRAINING.items():
        if name in words:
            raise UsageError(f"--{name} is about training, not --task infer{instead}")
    quantize = words.get("quantize")
    given = InferGiven(
        precision=_precision(words.get("precision")),
        attention=choice(Attention, words.get("attention"), "--attention", where=_WHERE),
        kv_dtype=_kv_dtype(words.get("kv-dtype")),
        quantize=quantize,
        strategy=_strategy(words.get("strategy")),
        offload=_offload(words.get("offload")),
        context=positive(words.get("context"), "--context"),
        batch=positive(words.get("batch"), "--batch"),
        new_tokens=positive(words.get("new-tokens"), "--new-tokens"),
        tensor_parallel=positive(words.get("tp"), "--tp"),
        pipeline_parallel=positive(words.get("pp"), "--pp"),
        settings=_settings(settings),
    )
    if quantize is not None:
        parse_quantize(quantize)
    _check_together(given)
    return given


def _settings(settings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = parse_settings(settings)
    for key, _ in found:
        if not key.startswith(_SETTINGS):
            raise UsageError(f"--set {key} is about training, not --task infer")
    return found


def _check_together(given: InferGiven) -> None:
    """UsageError for options that contradict each other."""
    tensor, pipeline = given.tensor_parallel or 1, given.pipeline_parallel or 1
    wants = {"tp": tensor > 1 or given.tensor_parallel is None, "pp": pipeline > 1 or given.pipeline_parallel is None}
    if given.strategy in wants and not wants[given.strategy]:
        raise UsageError(f"--strategy {given.strategy} and --{given.strategy} 1 contradict each other")
    if given.strategy in ("single", "replicas", "device-map") and tensor * pipeline > 1:
        degree = "--tp" if tensor > 1 else "--pp"
        raise UsageError(f"--strategy {given.strategy} and {degree} {max(tensor, pipeline)} contradict each other")
    if tensor > 1 and pipeline > 1:
        raise NotBuiltError(f"--tp {tensor} together with --pp {pipeline}")
    if given.offload == "all" and given.strategy in ("tp", "pp", "replicas"):
        raise UsageError(f"--offload all is about --strategy device-map, not {given.strategy}")
    settings = dict(given.settings)
    if settings.get("cache.implementation") == "static" and given.kv_dtype is CacheType.FP8:
        raise UsageError("--set cache.implementation=static and --kv-dtype fp8 contradict each other: transformers'")
    if given.context is not None and given.new_tokens is not None and given.new_tokens >= given.context:
        raise UsageError(
            f"--new-tokens {given.new_tokens} leaves no prompt in --context {given.context}: the context is the prompt"
            " plus the new tokens"
        )


def make_workload(
    given: InferGiven,
    pinned: bool,
    cluster: Cluster,
    spec: ModelSpec,
    dtype: tuple[WeightType, Basis],
    scheme: Scheme | None,
) -> InferWorkload:
    """The generation that the options describe, defaults filled in."""
    positions = spec.max_positions
    context = given.context or min(DEFAULT_CONTEXT, positions or DEFAULT_CONTEXT)
    new_tokens = given.new_tokens or 1
    if positions is not None and context > positions:
        raise UsageError(f"--context {context} is longer than the {positions} positions of {spec.id}")
    if new_tokens >= context:
        raise UsageError(f"--new-tokens {new_tokens} leaves no prompt in a context of {context}: give a --context")
    if context * (given.batch or 1) > MOST_TOKENS:
        raise UsageError(
            f"--context {context} x --batch {given.batch or 1} are more than the {MOST_TOKENS:,} tokens of a batch that"
            " are planned: lower one"
        )
    chunk = int(dict(given.settings).get("prefill.chunk", 0)) or None
    if chunk is not None and chunk >= context - new_tokens:
        raise UsageError(
            f"--set prefill.chunk={chunk} says nothing of a prompt of {context - new_tokens} tokens: give fewer, or a"
            " longer --context"
        )
    degrees = (given.tensor_parallel or 1) * (given.pipeline_parallel or 1)
    if cluster.world_size % degrees:
        name = "tp" if (given.tensor_parallel or 1) > 1 else "pp"
        raise UsageError(f"--{name} {degrees} does not divide {cluster.world_size} GPUs")
    computed = dtype[0]
    if given.kv_dtype not in (None, CacheType.AUTO, CacheType.FP8) and str(given.kv_dtype) != str(computed):
        raise UsageError(
            f"--kv-dtype {given.kv_dtype}: transformers keeps keys and values in the type of the computation, here"
            f" {computed}; fp8 is its quantised cache"
        )
    offload = given.offload
    strategy, tensor, pipeline = given.strategy, given.tensor_parallel, given.pipeline_parallel
    if pinned:
        offload, tensor, pipeline = offload or "none", tensor or 1, pipeline or 1
        strategy = strategy or _plain_strategy(cluster, tensor, pipeline)
    workload = InferWorkload(
        context=context,
        batch=given.batch or 1,
        new_tokens=new_tokens,
        precision=computed,
        kv_dtype=given.kv_dtype or CacheType.AUTO,
        cache=CacheKind(dict(given.settings).get("cache.implementation", "dynamic")),
        quantize="none" if scheme is None else scheme.word,
        attention=given.attention or Attention.SDPA,
        strategy=strategy,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        offload=offload,
        chunk=chunk,
        settings=given.settings,
    )
    return workload.with_basis(**_basis(given, pinned, dtype[1]))


def _plain_strategy(cluster: Cluster, tensor: int, pipeline: int) -> str:
    if tensor * pipeline > 1:
        return "tp" if tensor > 1 else "pp"
    return "single" if cluster.world_size == 1 else "replicas"


def _basis(given: InferGiven, pinned: bool, dtype: Basis) -> dict[str, Basis]:
    fixed = ("context", "batch", "new_tokens", "kv_dtype", "quantize", "attention")
    searched = ("strategy", "tensor_parallel", "pipeline_parallel", "offload")
    otherwise: dict[str, Basis] = dict.fromkeys(fixed, "default")
    otherwise.update(dict.fromkeys(searched, "default" if pinned else "searched"))
    found: dict[str, Basis] = {
        name: basis if getattr(given, name) is None else "given" for name, basis in otherwise.items()
    }
    cache: Basis = "given" if "cache.implementation" in dict(given.settings) else "default"
    return {**found, "precision": dtype, "cache": cache}


def quantisation(given: InferGiven, source: ModelSource) -> Scheme | None:
    """How the weights are stored: as --quantize says, else as the config does, which from_pretrained follows.

    InputError in one line for a config whose method is unknown.
    """
    if given.quantize is not None:
        return parse_quantize(given.quantize)
    return scheme_of(source.config or {})


def weight_type(given: WeightType | None, source: ModelSource) -> tuple[WeightType, Basis]:
    """Type in which the weights are loaded, and its origin.

    transformers 5 from_pretrained loads with dtype="auto": what the config says (`dtype`, older `torch_dtype`, of its
    text part too), else the checkpoint's own type, else fp32 (modeling_utils.py: _get_dtype). Where a quantised
    checkpoint's headers are not at hand, its rest is in the type that published ones of its method have.
    """
    if given is not None:
        return given, "given"
    return named_type(source) or PLAIN_WEIGHTS, "default"


def named_type(source: ModelSource) -> WeightType | None:
    """What the config or the checkpoint says of the weights' type; None where neither is at hand that does."""
    config = source.config or {}
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key in ("dtype", "torch_dtype"):
            found = _BY_DTYPE.get(str(part.get(key, "")).removeprefix("torch."))
            if found is not None:
                return found
    stored = [name for name in (source.stored.by_dtype if source.stored else {}) if name in _BY_DTYPE]
    if not stored and (scheme := scheme_of(config)) is not None and scheme.rest_dtype is not None:
        return _BY_DTYPE[scheme.rest_dtype]
    return _BY_DTYPE[stored[0]] if stored else None


_BY_DTYPE = {kind.dtype: kind for kind in map(WeightType, WeightType.names())}


def _precision(value: str | None) -> WeightType | None:
    weights = WeightType.names()
    if value is not None and value.lower() in Precision.names() and value.lower() not in weights:
        raise UsageError(
            f"--precision {value.lower()} is about training: inference loads weights as {listed(weights)}"
            " (--quantize for fewer bits)"
        )
    return choice(WeightType, value, "--precision", where=_WHERE)


def _kv_dtype(value: str | None) -> CacheType | None:
    return choice(CacheType, value, "--kv-dtype", where=_WHERE, later=_LATER_CACHES)


def _strategy(value: str | None) -> str | None:
    if value is None or value.lower() == "auto":
        return None
    if value.lower() in STRATEGIES:
        return value.lower()
    known = f"use auto, {', '.join(STRATEGIES)}"
    if known_traits(value.lower()) is not None or value.lower() in NOT_BUILT:
        raise UsageError(f"--strategy {value.lower()} is about training: for --task infer {known}")
    raise UsageError(f"--strategy {value!r} is unknown for --task infer: {known}.{did_you_mean(value, STRATEGIES)}")


def _offload(value: str | None) -> str | None:
    if value is None or value.lower() in OFFLOADS:
        return None if value is None else value.lower()
    raise UsageError(f"--offload {value!r} is not for --task infer: use none or all (CPU RAM, then disk)")
