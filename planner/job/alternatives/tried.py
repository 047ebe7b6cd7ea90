"""Changes of a job that does not fit: evaluated one after the other, the smallest first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import islice
from typing import Any

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.alternatives.changes import Job, asked, larger_devices, more_devices
from gpu_plan.planner.job.alternatives.found import MOST
from gpu_plan.planner.job.alternatives.ways import Way, together, ways
from gpu_plan.planner.job.training import trace_provider
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import Alternative
from gpu_plan.planner.search.changes import ANOTHER_STRATEGY
from gpu_plan.planner.search.task import AnyTask
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider

_RUNS = 2
"""Changes that do not help of a job that runs anew for each, behind which no more are evaluated."""
_FURTHER = 3
"""Larger sizes that are looked at behind one that holds the job with the nodes' RAM alone."""
_SIZES = frozenset({"--seq-len", "--context", "--batch", "--micro-batch"})


@dataclass(slots=True, kw_only=True)
class Tried:
    """What was tried: what fits, and what came nearest of the rest."""

    found: list[Alternative]
    refused: list[str] = field(default_factory=list)
    """Changes that do not help, in words."""
    alone: list[Way] = field(default_factory=list)
    """Ways that do without the node's RAM: whatever goes further than one of them is not asked about."""

    gone: list[Way] = field(default_factory=list)
    """All ways that fit: none is asked about with a shorter sample as well."""
    left: list[str] = field(default_factory=list)
    """Changes that were not evaluated for what that takes."""
    offloads: bool = False
    """Whether somebody asked for offloading: then none has to do without the node's RAM."""

    def makes_needless(self, way: Way) -> bool:
        """Whether less of a change than this one is known to do."""
        return any(way.has_all_of(one) for one in self.alone) or any(way.only_shortens(one) for one in self.gone)

    @property
    def enough(self) -> bool:
        """Whether so many that do without the node's RAM are known as are told."""
        return sum(self.offloads or not one.host_bytes_per_node for one in self.found) >= MOST


def alternatives(job: Job, *, fits: bool, known: Sequence[Alternative] = ()) -> Tried:
    """Changes that fit, behind those that are `known`; of a job that fits already, what it could be instead.

    On the same devices at most `MOST`: those that keep nothing in the node's RAM first, among them what changes least.
    Behind them one of more GPUs and one of a larger card.
    """
    tried = Tried(found=list(known), offloads=dict(job.request.words).get("offload", "none") != "none")
    if job.captures and not job.request.alternatives:
        return _captured(job, tried)
    for way, words, make in _changes(job, fits):
        if tried.enough:
            break
        if way is None or not tried.makes_needless(way):
            _try(job, tried, words, make, way=way)
    tried.found = sorted(tried.found, key=lambda one: one.host_bytes_per_node > 0)[:MOST]
    for clusters in (more_devices(job.cluster), larger_devices(job)):
        _on_other_devices(job, tried, clusters)
    return tried


def _captured(job: Job, tried: Tried) -> Tried:
    """Of a job each of whose changes runs a trainer anew: adapters first, which ask for least, until one fits, and the
    next that has more GPUs and a larger card. What is left is named, not evaluated."""
    training = job.task.evaluator.workload if isinstance(job.task, TrainingTask) else None
    left = sorted(_of_trainers(ways(job.request, training, known=job.known)), key=lambda way: not way.adapts)
    while left and len(tried.refused) < _RUNS and not tried.found:
        way = left.pop(0)
        _try(job, tried, way.words, partial(asked, job, way), way=way, simplest=True)
    tried.left = [way.words for way in left]
    for clusters in (more_devices(job.cluster), larger_devices(job)):
        _on_other_devices(job, tried, islice(clusters, _RUNS), simplest=True)
    return tried


def _of_trainers(every: Iterable[Way]) -> list[Way]:
    """Those that a recipe takes: its loss is its trainer's, and so is who runs it."""
    return [way for way in every if not way.of_the_loop]


def _on_other_devices(
    job: Job, tried: Tried, clusters: Iterable[tuple[str, Cluster]], *, simplest: bool = False
) -> None:
    """The first that hold the job alone; where a few more do not either, the first that hold it with the nodes' RAM."""
    known, left = list(tried.found), _FURTHER
    for change, cluster in clusters:
        _try(job, tried, change, partial(job.task.on, cluster), cluster=cluster, simplest=simplest)
        added = [one for one in tried.found if one not in known]
        if added:
            left -= 1
        if left < 0 or (added and (tried.offloads or not added[-1].host_bytes_per_node)):
            break
    added = [one for one in tried.found if one not in known]
    alone = [one for one in added if not one.host_bytes_per_node]
    tried.found = known + (alone or added)[:1]


def _try(
    job: Job,
    tried: Tried,
    change: str,
    make: Callable[[], AnyTask],
    *,
    way: Way | None = None,
    cluster: Cluster | None = None,
    simplest: bool = False,
) -> None:
    """Evaluates one change, `simplest` at its smallest batch alone; one that makes no sense for this job is passed
    over, and a further value of a size of which one fits."""
    if any(one.change == change for one in tried.found):
        return
    option = change.partition(" ")[0]
    if option in _SIZES and any(one.change.partition(" ")[0] == option for one in tried.found):
        return
    task: AnyTask | None = None
    try:
        task = make()
        best = task.fitting() if simplest else at_its_batch(task)
    except (PlanError, CannotSplitError):
        let_go(task, job)
        return
    if best is None:
        let_go(task, job)
        tried.refused.append(change)
        return
    alternative = alternative_of(_named(change, job, task, best), task, best, cluster or job.cluster, way=way)
    let_go(task, job)
    if any(one.change == alternative.change for one in tried.found):
        return
    tried.found.append(alternative)
    if way is None:
        return
    tried.gone.append(way)
    if not alternative.host_bytes_per_node:
        tried.alone.append(way)


def let_go(task: AnyTask | None, job: Job) -> None:
    """Nobody asks a change's task anything more: what was laid out for it goes, and traces that are not the job's."""
    if not (isinstance(task, TrainingTask) and isinstance(job.task, TrainingTask)):
        return
    task.forget()
    mine, theirs = job.task.evaluator, task.evaluator
    if not isinstance(theirs.provider, TraceProvider) or job.openers.traces is not None:
        return  # whoever opened it may ask it again
    if theirs.provider is not mine.provider:
        theirs.provider.close()
    elif theirs.workload.seq_len != mine.workload.seq_len:
        theirs.provider.let_go(theirs.workload.seq_len)


def at_its_batch(task: AnyTask) -> Any:
    """The simplest way that fits, of a training job at the micro batch that serves it best: the smallest alone would
    leave out what room is good for. None where nothing fits."""
    fitting = task.fitting()
    if not isinstance(fitting, StepJudgement) or not isinstance(task, TrainingTask):
        return fitting
    return task.fits_best(fitting.family) or fitting


def alternative_of(change: str, task: AnyTask, best: Any, cluster: Cluster, *, way: Way | None = None) -> Alternative:
    """A change with the figures of the plan that it would come to.

    Where samples are packed their tokens are other ones than padded rows have: it is told in samples.
    """
    speed = task.speed(best)
    cheapest = min((price.usd_per_hour for price in cluster.prices), default=None)
    packed = way is not None and way.packs
    each = None if packed else speed.tokens_per_second_per_gpu
    return Alternative(
        change=change,
        plan=f"{task.words(best)}, samples packed" if packed else task.words(best),
        cluster=cluster.spec,
        device_used_bytes=best.expected_bytes,
        capacity_bytes=best.capacity_bytes,
        host_bytes_per_node=best.kept_host_bytes,
        samples_per_second=best.samples_per_second * (1.0 if way is None else way.samples_per_row),
        tokens_per_second=None if each is None else each * cluster.world_size,
        usd_per_hour=None if cheapest is None else cheapest * cluster.world_size,
    )


def _named(change: str, job: Job, task: AnyTask, best: Any) -> str:
    """Another strategy by its name, with what it offloads, as it is asked for; the same one by what it offloads."""
    if change != ANOTHER_STRATEGY or not isinstance(best, StepJudgement) or best.family.copy_ranks > 1:
        return change
    chosen, given = task.choice(best), dict(job.request.words)
    said = [] if chosen.name == given.get("strategy") else [f"--strategy {chosen.name}"]
    if chosen.offload != "none" or "offload" in given:
        said.append(f"--offload {chosen.offload}")
    return " ".join(said)


def _changes(job: Job, fits: bool) -> Iterator[tuple[Way | None, str, Callable[[], AnyTask]]]:
    """Changes on the same devices, the smallest first: a shorter sample after what leaves the data alone."""
    smaller = [] if fits else list(job.task.smaller())
    for words, task in smaller:
        if not words.startswith("--seq-len"):
            yield None, words, lambda task=task: task  # type: ignore[misc]
    training = job.task.evaluator.workload if isinstance(job.task, TrainingTask) else None
    alike = _with_what_is_read(job)
    for way in ways(job.request, training, known=job.known):
        yield way, way.words, partial(asked, alike, way)
    for words, task in smaller:
        if words.startswith("--seq-len"):
            yield None, words, lambda task=task: task  # type: ignore[misc]
    if fits or training is None or job.request.model.endswith(".py"):
        return
    for way in together(job.request, training, job.known):
        yield way, way.words, partial(asked, alike, way)


def _with_what_is_read(job: Job) -> Job:
    """The job, whose providers take what its own has read of the same model."""
    mine = job.task.evaluator.provider if isinstance(job.task, TrainingTask) else None
    if not isinstance(mine, TraceProvider) or job.openers.traces is not None:
        return job

    def opened(request: Request, cluster: Cluster, source: ModelSource, given: Given, note: Note) -> TraceProvider:
        fresh = trace_provider(request, cluster, source, given, note)
        fresh.takes(mine)
        return fresh

    return replace(job, openers=replace(job.openers, traces=opened))


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
