"""When nothing fits: the smallest change that would."""

from collections.abc import Iterator
from dataclasses import replace

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.search.candidates import Batch, families
from gpu_plan.planner.search.evaluate import Evaluator, Judgement
from gpu_plan.planner.search.reasons import title
from gpu_plan.planner.strategy.base import Offload
from gpu_plan.planner.strategy.registry import find_strategy
from gpu_plan.planner.workload.training import Checkpointing, Precision, Workload

_LARGEST_NODES = 1024


def nearest_change(evaluator: Evaluator) -> str | None:
    """First an option that the user fixed, then more of the same GPUs; None when not even that helps."""
    workload, cluster = evaluator.workload, evaluator.cluster
    for words, relaxed in _relaxed(workload, evaluator.provider.spec().can_checkpoint, cluster.gpu.is_cpu):
        fitting = _fits(evaluator, relaxed, cluster)
        if fitting is not None:
            return f"{words} would fit: {_words(fitting)}"
    loose = replace(workload, strategy=None, offload=None, checkpointing=None, micro_batch=None, global_batch=None)
    for grown in _grown(cluster):
        fitting = _fits(evaluator, loose, grown)
        if fitting is not None:
            return f"{grown.spec} would fit: {_words(fitting)}"
    return None


def _relaxed(workload: Workload, can_checkpoint: bool, is_cpu: bool) -> Iterator[tuple[str, Workload]]:
    if workload.reserve_bytes:
        yield "without --set memory.reserve it", _without(workload, "memory.reserve")
    if can_checkpoint and workload.checkpointing not in (None, Checkpointing.FULL):
        yield "--checkpointing full", _fully_checkpointed(workload)
    elif workload.setting("checkpoint.every", "1") != "1":
        yield "--set checkpoint.every=1", _fully_checkpointed(workload)
    if workload.micro_batch is not None and workload.micro_batch > 1:
        yield "--micro-batch 1", replace(workload, micro_batch=1, global_batch=None)
    if not is_cpu:
        yield from _more_offload(workload)
    if workload.strategy is not None:
        yield "another --strategy", replace(workload, strategy=None, offload=None)
    if half := workload.precision.traits.half:
        yield f"--precision {half}", replace(workload, precision=Precision(half))
    if workload.seq_len > 512:
        yield f"--seq-len {workload.seq_len // 2}", replace(workload, seq_len=workload.seq_len // 2)


def _fully_checkpointed(workload: Workload) -> Workload:
    return replace(_without(workload, "checkpoint.every"), checkpointing=Checkpointing.FULL)


def _without(workload: Workload, key: str) -> Workload:
    return replace(workload, settings=tuple(pair for pair in workload.settings if pair[0] != key))


def _more_offload(workload: Workload) -> Iterator[tuple[str, Workload]]:
    """What else can go to the host, where the user said that less may and the strategy can."""
    if workload.offload is None:
        return
    kinds = list(Offload)
    known = kinds if workload.strategy is None else find_strategy(workload.strategy).offloads
    for more in kinds[kinds.index(Offload(workload.offload)) + 1 :]:
        if more in known:
            yield f"--offload {more}", replace(workload, offload=str(more))


def _grown(cluster: Cluster) -> Iterator[Cluster]:
    nodes = cluster.nodes
    per_node = max(cluster.gpus_per_node, cluster.gpu.node_size or cluster.gpus_per_node)
    if per_node > cluster.gpus_per_node:
        yield replace(cluster, gpus_per_node=per_node)
    while nodes < _LARGEST_NODES and not cluster.gpu.is_cpu:
        nodes *= 2
        yield replace(cluster, nodes=nodes, gpus_per_node=per_node)


def _fits(evaluator: Evaluator, workload: Workload, cluster: Cluster) -> Judgement | None:
    """The first fitting candidate at the smallest batch; traces are shared with the first search."""
    trial = Evaluator(
        provider=evaluator.provider,
        workload=replace(workload, grad_accum=None, global_batch=None),
        cluster=cluster,
        speed=evaluator.speed,
        host_limit=evaluator.host_limit,
        stored=evaluator.stored,
    )
    batch = Batch(micro_batch=workload.micro_batch or 1, accumulation_steps=1)
    for family in families(trial.workload, cluster, evaluator.provider.spec().can_checkpoint):
        trace = trial.provider.stepless(trial.variant(family).regime)
        if family.strategy.refuses(trial.context(family, 1, trace)) is not None:
            continue
        if trial.judge_states(family, batch).verdict != "fits":
            continue
        judgement = trial.simulate(trial.judge(family, batch))
        if judgement.verdict == "fits" and not judgement.plan.dies and trial.host_shortage(judgement) is None:
            return judgement
    return None


def _words(judgement: Judgement) -> str:
    checkpointing = str(judgement.family.checkpointing)
    extra = "" if checkpointing == "none" else f", {checkpointing} checkpointing"
    return f"{title(judgement)}, micro batch {judgement.batch.micro_batch}{extra}"
