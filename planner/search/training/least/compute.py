"""The least time of a sample on a cluster, whatever the strategy: what its ranks compute, waiting for nothing."""

from collections.abc import Iterable

from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.speed.model import OptimizerWork
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.workload.training import Checkpointing


def least_of_a_sample(evaluator: Evaluator, families: Iterable[Family], cuts: list[Batch]) -> float:
    """Seconds of one sample that no plan of `families` goes below, at whichever of `cuts` is the best.

    Forward and backward of whole copies, one on each rank: neither stepped, nor sent, nor recomputed. Ranks that share
    a copy compute no less of it in all. Infinite where no step is at hand.
    """
    found: dict[str, float] = {}
    for family in sorted(families, key=lambda one: one.checkpointing is not Checkpointing.NONE):
        if family.copy_ranks > 1 or family.layout is not None:
            continue
        key = str(evaluator.variant(family).regime)
        if key not in found:
            found[key] = min(_computed(evaluator, family, cuts), default=float("inf"))
    return min(found.values(), default=float("inf"))


def _computed(evaluator: Evaluator, family: Family, cuts: list[Batch]) -> Iterable[float]:
    """By micro batch, as far as steps of it are at hand."""
    nothing = OptimizerWork(parameter_bytes_read_written=0)
    for batch in cuts:
        try:
            trace = evaluator.provider.trace(evaluator.variant(family), batch.micro_batch)
        except NotTraceableError:
            return
        work = evaluator.own_work(family, batch, trace, nothing, ())
        time = evaluator.speed.step_time(work, evaluator.cluster)
        samples = batch.micro_batch * batch.accumulation_steps * evaluator.cluster.world_size
        yield (time.forward_seconds + time.backward_seconds) / samples
