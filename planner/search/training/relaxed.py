"""Changes of a training job that may make it fit, the smallest first."""

from collections.abc import Iterator
from dataclasses import replace

from gpu_plan.planner.search.changes import ANOTHER_STRATEGY, without, without_reserve
from gpu_plan.planner.strategy.registry import find_strategy
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.training import Checkpointing, Precision, Workload

_SHORTEST = 512
"""Tokens: what is asked about at least."""


def relaxed(workload: Workload, can_checkpoint: bool, is_cpu: bool) -> Iterator[tuple[str, Workload]]:
    """The job with less asked of it, in words."""
    yield from without_reserve(workload)
    if can_checkpoint and workload.checkpointing not in (None, Checkpointing.FULL):
        yield "--checkpointing full", _fully_checkpointed(workload)
    elif workload.setting("checkpoint.every", "1") != "1":
        yield "--set checkpoint.every=1", _fully_checkpointed(workload)
    if workload.micro_batch is not None and workload.micro_batch > 1:
        yield "--micro-batch 1", replace(workload, micro_batch=1, global_batch=None)
    if not is_cpu:
        yield from _more_offload(workload)
    if workload.strategy is not None:
        yield ANOTHER_STRATEGY, replace(workload, strategy=None, offload=None)
    if half := workload.precision.traits.half:
        yield f"--precision {half}", replace(workload, precision=Precision(half))
    length = workload.seq_len // 2
    while length >= _SHORTEST:
        yield f"--seq-len {length}", replace(workload, seq_len=length)
        length //= 2


def _fully_checkpointed(workload: Workload) -> Workload:
    return replace(without(workload, "checkpoint.every"), checkpointing=Checkpointing.FULL)


def _more_offload(workload: Workload) -> Iterator[tuple[str, Workload]]:
    """What else can go to the host, where the user said that less may and the strategy can."""
    if workload.offload is None:
        return
    kinds = list(Offload)
    known = kinds if workload.strategy is None else find_strategy(workload.strategy).offloads
    for more in kinds[kinds.index(Offload(workload.offload)) + 1 :]:
        if more in known:
            yield f"--offload {more}", replace(workload, offload=str(more))
