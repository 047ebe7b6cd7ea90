"""From option words to a ServeWorkload: values checked, defaults filled, every origin noted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.quantization import Scheme, parse_quantize
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.options.generation import DEFAULT_CONTEXT, STRATEGIES
from gpu_plan.planner.options.settings import parse_settings
from gpu_plan.planner.options.task import SERVING
from gpu_plan.planner.options.values import choice, positive
from gpu_plan.planner.serving.known import find_server, server_words
from gpu_plan.planner.workload.generation import CacheType
from gpu_plan.planner.workload.precisions import WeightType
from gpu_plan.planner.workload.serving import ServeWorkload
from gpu_plan.planner.workload.settled import Basis

_ACCEPTED = frozenset(
    {
        "task",
        "server",
        "context",
        "precision",
        "kv-dtype",
        "quantize",
        "tp",
        "strategy",
        "prefer",
        "host-ram",
        "host-nvme",
        "price",
        *SERVING,
    }
)
_INSTEAD = {
    "batch": ": use --concurrency",
    "new-tokens": ": --context is prompt and answer together",
    "seq-len": ": use --context",
    "micro-batch": ": use --concurrency",
}
SETTINGS = ("memory.reserve",)
_WHERE = " for a server"
_SERVED = STRATEGIES[:3]
"""A whole model on one device or on each, and tensor parallel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeGiven:
    """Option words as values; None where an option was not given."""

    server: str
    context: int | None
    concurrency: int | None
    utilization: float | None
    precision: WeightType | None
    kv_dtype: CacheType | None
    quantize: str | None
    strategy: str | None
    tensor_parallel: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    enforce_eager: bool
    settings: tuple[tuple[str, str], ...]


def read_serving(words: Mapping[str, str], settings: Sequence[str]) -> ServeGiven:
    """What the words mean; UsageError in one line for every value that makes no sense, before any work is done."""
    server = words["server"].lower()
    known = server_words()
    if server not in known:
        hint = did_you_mean(server, known)
        raise UsageError(f"--server {words['server'][:40]!r} is unknown: use {', '.join(known)}.{hint}")
    for name in words:
        if name not in _ACCEPTED:
            raise UsageError(f"--{name} says nothing about --server {server}{_INSTEAD.get(name, '')}")
    tensor, own = positive(words.get("tp"), "--tp"), positive(words.get("vllm-tp"), "--vllm-tp")
    if tensor is not None and own is not None and tensor != own:
        raise UsageError(f"--tp {tensor} and --vllm-tp {own} contradict each other: keep one")
    quantize = words.get("quantize")
    if quantize is not None:
        parse_quantize(quantize)
    found = parse_settings(settings)
    for key, _ in found:
        if key not in SETTINGS:
            raise UsageError(f"--set {key} says nothing about --server {server}")
    return ServeGiven(
        server=server,
        context=positive(words.get("context"), "--context"),
        concurrency=positive(words.get("concurrency"), "--concurrency"),
        utilization=_share(words.get("gpu-memory-utilization")),
        precision=choice(WeightType, words.get("precision"), "--precision", where=_WHERE),
        kv_dtype=choice(CacheType, words.get("kv-dtype"), "--kv-dtype", where=_WHERE),
        quantize=quantize,
        strategy=_strategy(words.get("strategy"), own or tensor),
        tensor_parallel=own or tensor,
        max_num_seqs=positive(words.get("max-num-seqs"), "--max-num-seqs"),
        max_num_batched_tokens=positive(words.get("max-num-batched-tokens"), "--max-num-batched-tokens"),
        enforce_eager=words.get("enforce-eager") == "true",
        settings=found,
    )


def _share(word: str | None) -> float | None:
    """A share of a device. UsageError for what is none above 0 and at most 1."""
    if word is None:
        return None
    try:
        share = float(word) if len(word) < 32 else -1.0
    except ValueError:
        share = -1.0
    if not 0.0 < share <= 1.0:
        hint = f": {share / 100:g} is {share:g} %" if 1.0 < share <= 100.0 else ""
        raise UsageError(f"--gpu-memory-utilization {word[:40]!r} is no share above 0 and at most 1, such as 0.9{hint}")
    return share


def _strategy(word: str | None, tensor: int | None) -> str | None:
    if word is None or word.lower() == "auto":
        return None
    if word.lower() not in _SERVED:
        raise UsageError(f"--strategy {word!r} is unknown{_WHERE}: use auto, {', '.join(_SERVED)}")
    if word.lower() != "tp" and (tensor or 1) > 1:
        raise UsageError(f"--strategy {word.lower()} and --tp {tensor} contradict each other")
    return word.lower()


def serve_workload(
    given: ServeGiven,
    pinned: bool,
    cluster: Cluster,
    spec: ModelSpec,
    dtype: tuple[WeightType, Basis],
    scheme: Scheme | None,
) -> ServeWorkload:
    """The server that the options describe, defaults filled in."""
    positions = spec.max_positions
    context = given.context or min(DEFAULT_CONTEXT, positions or DEFAULT_CONTEXT)
    if positions is not None and context > positions:
        raise UsageError(f"--context {context} is longer than the {positions} positions of {spec.id}")
    if cluster.gpu.is_cpu:
        raise UsageError(f"--server {given.server} reserves memory of GPUs: name some in --gpus")
    ranks = given.tensor_parallel or 1
    if cluster.world_size % ranks:
        raise UsageError(f"--vllm-tp {ranks} does not divide {cluster.world_size} GPUs")
    if ranks > cluster.gpus_per_node:
        raise UsageError(f"--vllm-tp {ranks} is more than the {cluster.gpus_per_node} GPUs of a node")
    workload = ServeWorkload(
        server=given.server,
        context=context,
        concurrency=given.concurrency or 1,
        utilization=given.utilization or find_server(given.server).usual_share,
        precision=dtype[0],
        kv_dtype=given.kv_dtype or CacheType.AUTO,
        quantize="none" if scheme is None else scheme.word,
        strategy=given.strategy or (("tp" if ranks > 1 else None) if not pinned else "tp" if ranks > 1 else "replicas"),
        tensor_parallel=given.tensor_parallel or (1 if pinned else None),
        max_num_seqs=given.max_num_seqs,
        max_num_batched_tokens=given.max_num_batched_tokens,
        enforce_eager=given.enforce_eager,
        settings=given.settings,
    )
    return workload.with_basis(**_basis(given, pinned, dtype[1]))


def _basis(given: ServeGiven, pinned: bool, dtype: Basis) -> dict[str, Basis]:
    fixed = ("context", "concurrency", "utilization", "kv_dtype", "quantize", "max_num_seqs", "max_num_batched_tokens")
    otherwise: dict[str, Basis] = dict.fromkeys(fixed, "default")
    otherwise.update(dict.fromkeys(("strategy", "tensor_parallel"), "default" if pinned else "searched"))
    found: dict[str, Basis] = {
        name: basis if getattr(given, name) is None else "given" for name, basis in otherwise.items()
    }
    found["enforce_eager"] = "given" if given.enforce_eager else "default"
    return {**found, "server": "given", "precision": dtype}
