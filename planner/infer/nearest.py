"""When nothing fits: the smallest change to the job that would."""

from collections.abc import Iterator
from dataclasses import replace

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.infer.evaluate import GenerationEvaluator, InferJudgement
from gpu_plan.planner.infer.search import Found, search
from gpu_plan.planner.workload.generation import CacheType

_LARGEST_NODES = 16


def nearest_change(evaluator: GenerationEvaluator, found: Found) -> str | None:
    """A smaller batch, a shorter context, a quantised cache, then more of the same GPUs; None when none helps."""
    del found
    for words, changed in _changed(evaluator):
        fitting = _fits(changed)
        if fitting is not None:
            return f"{words} would fit: {fitting.layout.title}"
    for grown in _grown(evaluator.cluster):
        bigger = replace(
            evaluator.workload, strategy=None, tensor_parallel=None, pipeline_parallel=None, offload="none"
        )
        fitting = _fits(_with(evaluator, workload=bigger, cluster=grown))
        if fitting is not None:
            return f"{grown.spec} would fit: {fitting.layout.title}"
    return None


def _changed(evaluator: GenerationEvaluator) -> Iterator[tuple[str, GenerationEvaluator]]:
    workload = evaluator.workload
    batch = workload.batch
    while batch > 1:
        batch = max(1, batch // 2)
        yield f"--batch {batch}", _with(evaluator, workload=replace(workload, batch=batch))
    if workload.kv_dtype is CacheType.AUTO and not evaluator.encoder_decoder:
        yield "--kv-dtype fp8", _with(evaluator, workload=replace(workload, kv_dtype=CacheType.FP8))
    context = workload.context
    while context // 2 > max(512, workload.new_tokens):
        context //= 2
        yield f"--context {context}", _with(evaluator, workload=replace(workload, context=context))


def _grown(cluster: Cluster) -> Iterator[Cluster]:
    per_node = max(cluster.gpus_per_node, cluster.gpu.node_size or cluster.gpus_per_node)
    size = cluster.gpus_per_node
    while size * 2 <= per_node and not cluster.gpu.is_cpu:
        size *= 2
        yield replace(cluster, gpus_per_node=size, platform=None)
    nodes = cluster.nodes
    while nodes < _LARGEST_NODES and not cluster.gpu.is_cpu:
        nodes *= 2
        yield replace(cluster, nodes=nodes, gpus_per_node=per_node, platform=None)


def _with(evaluator: GenerationEvaluator, **changes: object) -> GenerationEvaluator:
    values = {
        name: getattr(evaluator, name) for name in ("provider", "workload", "cluster", "speed", "encoder_decoder")
    }
    return GenerationEvaluator(**{**values, **changes})


def _fits(evaluator: GenerationEvaluator) -> InferJudgement | None:
    """None also where the changed job makes no sense: a class whose layers take no quantised cache, for one."""
    try:
        plans = search(evaluator).plans
    except (InputError, UsageError):
        return None
    return next((plan for plan in plans if plan.verdict == "fits"), None)
