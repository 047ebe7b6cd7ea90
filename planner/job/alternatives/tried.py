"""Changes of a job that fit: evaluated one after the other, the smallest first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.alternatives.changes import Job, asked, larger_devices, more_devices, other_words
from gpu_plan.planner.plan.document import Alternative
from gpu_plan.planner.search.task import AnyTask
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.trace.parallel.errors import CannotSplitError

_SHORTER = "--seq-len"
_SIZES = frozenset({_SHORTER, "--context", "--batch", "--micro-batch"})


@dataclass(slots=True, kw_only=True)
class Tried:
    """What was tried: what fits, and what came nearest of the rest."""

    found: list[Alternative]
    refused: list[str]
    """Changes that do not help, in words."""


def alternatives(job: Job, *, fits: bool, known: Sequence[Alternative] = (), most: int = 5) -> Tried:
    """Changes that fit, the smallest first, behind those that are `known`; of a job that fits already, what it could be
    instead.

    At most `most`, of which one has more GPUs and one a larger card.
    """
    tried = Tried(found=list(known), refused=[])
    for change, task in _changes(job, fits):
        if len(tried.found) >= most - 2:
            break
        _try(job, tried, change, task)
    for clusters in (more_devices(job.cluster), larger_devices(job)):
        before = len(tried.found)
        for change, cluster in clusters:
            _try(job, tried, change, lambda cluster=cluster: job.task.on(cluster), cluster)
            if len(tried.found) > before:
                break
    return tried


def _try(job: Job, tried: Tried, change: str, make: Any, cluster: Cluster | None = None) -> None:
    """Evaluates one change; one that makes no sense for this job is passed over, and a further value of a size of
    which one fits."""
    option = change.partition(" ")[0]
    if option in _SIZES and any(one.change.partition(" ")[0] == option for one in tried.found):
        return
    try:
        task: AnyTask = make()
        best = at_its_batch(task)
    except (PlanError, CannotSplitError):
        return
    if best is None:
        tried.refused.append(change)
        return
    tried.found.append(alternative_of(change, task, best, cluster or job.cluster))


def at_its_batch(task: AnyTask) -> Any:
    """The simplest way that fits, of a training job at the micro batch that serves it best: the smallest alone would
    leave out what room is good for. None where nothing fits."""
    fitting = task.fitting()
    if not isinstance(fitting, StepJudgement):
        return fitting
    best = task.explore(fitting.family, exhaustive=False).best
    return best if best is not None and best.verdict == "fits" else fitting


def alternative_of(change: str, task: AnyTask, best: Any, cluster: Cluster) -> Alternative:
    """A change with the figures of the plan that it would come to."""
    speed = task.speed(best)
    cheapest = min((price.usd_per_hour for price in cluster.prices), default=None)
    return Alternative(
        change=change,
        plan=task.words(best),
        cluster=cluster.spec,
        device_used_bytes=best.expected_bytes,
        capacity_bytes=best.capacity_bytes,
        host_bytes_per_node=best.kept_host_bytes,
        samples_per_second=best.samples_per_second,
        tokens_per_second=None
        if speed.tokens_per_second_per_gpu is None
        else speed.tokens_per_second_per_gpu * cluster.world_size,
        usd_per_hour=None if cheapest is None else cheapest * cluster.world_size,
    )


def _changes(job: Job, fits: bool) -> Iterator[tuple[str, Any]]:
    """Changes on the same devices, the smallest first: a shorter sequence after what leaves the data alone."""
    smaller = [] if fits else list(job.task.smaller())
    for words, task in smaller:
        if not words.startswith(_SHORTER):
            yield words, lambda task=task: task
    for words, added in other_words(job.request):
        yield words, lambda added=added: asked(job, added)
    for words, task in smaller:
        if words.startswith(_SHORTER):
            yield words, lambda task=task: task


def nearest(tried: Tried) -> str:
    """The first of them as one sentence; where nothing helps, what was tried."""
    if tried.found:
        first = tried.found[0]
        return f"{first.change} would fit: {first.plan}"
    if not tried.refused:
        return (
            "none is known: nothing that is fixed could be asked less of, and no device with more memory is rented out"
        )
    return f"nothing that was tried would fit: {', '.join(tried.refused[:4])}" + (
        f" and {len(tried.refused) - 4} more" if len(tried.refused) > 4 else ""
    )
