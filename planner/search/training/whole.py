"""Whole copies of the model, one on every device: whether they can be held, and whether they leave room."""

from dataclasses import replace
from typing import Any, Protocol

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.ranking.rules import is_cramped
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.strategy.known import unsharded
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.provider import Provider
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.workload.training import Checkpointing, Workload

_SIZES = (2, 1)
"""Micro batches at which a copy may leave room: two samples first, which a search looks at anyway."""


class Judge(Protocol):
    """What is asked of the evaluator."""

    workload: Workload
    cluster: Cluster
    provider: Provider
    kept_rooms: dict[Any, bool]

    def judge_states(self, family: Family, batch: Batch) -> Judgement:
        """A lower bound without tracing."""
        ...

    def judge_uncounted(self, family: Family, batch: Batch) -> Judgement:
        """One candidate that is none of the search's own."""
        ...


def whole_copy(evaluator: Any, family: Family, batch: Batch) -> Family | None:
    """The family that holds everything on every device, where the job can be run so."""
    workload, traits = evaluator.workload, unsharded(evaluator.cluster.world_size)
    known = workload.stack.traits.strategies
    if workload.strategy is not None or evaluator.cluster.gpu.is_cpu or (known and traits.name not in known):
        return None
    whole = Family(strategy=STRATEGIES[traits.name], offload=Offload.NONE, checkpointing=family.checkpointing)
    return whole if evaluator.judge_states(whole, batch).device_verdict != "no" else None


def holds_whole(evaluator: Judge, family: Family, batch: Batch) -> bool:
    """Whether every device holds the model and its states by itself, and the job may be run so."""
    return whole_copy(evaluator, family, batch) is not None


def leaves_room(evaluator: Judge, family: Family, batch: Batch) -> bool:
    """Whether whole copies run with a tenth of each device to spare, at the batch that was asked for or a small one,
    with as much checkpointing as the job leaves open."""
    whole = whole_copy(evaluator, family, batch)
    if whole is None:
        return False
    free = evaluator.workload.checkpointing is None and evaluator.provider.spec().can_checkpoint
    lean = replace(whole, checkpointing=Checkpointing.FULL if free else family.checkpointing)
    key = (lean, evaluator.workload.micro_batch)
    if key not in evaluator.kept_rooms:
        evaluator.kept_rooms[key] = _leaves_room(evaluator, lean)
    return evaluator.kept_rooms[key]


def _leaves_room(evaluator: Judge, lean: Family) -> bool:
    given = evaluator.workload.micro_batch
    try:
        judged = (
            evaluator.judge_uncounted(lean, Batch(micro_batch=size, accumulation_steps=1))
            for size in ((given,) if given else _SIZES)
        )
        return any(not is_cramped(one) for one in judged)
    except NotTraceableError:  # larger than any shipped trace
        return True
