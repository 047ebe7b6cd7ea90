"""What else could be done beside a plan that fits, at a bounded cost.

Nothing is traced for it but what makes room where the plan is a last resort: the other changes are evaluated where
their traces are at hand, kept from before or shipped, and named where they are not. One family is explored for each
change, the plan's own.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.alternatives.changes import (
    Job,
    asked,
    fewer_devices,
    larger_devices,
    more_devices,
)
from gpu_plan.planner.job.alternatives.found import MOST, Beside
from gpu_plan.planner.job.alternatives.tried import alternative_of, at_its_batch, let_go
from gpu_plan.planner.job.alternatives.useful import LEAST, Gain, in_order, most_useful
from gpu_plan.planner.job.alternatives.ways import Way, together, ways
from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.job.training import trace_provider
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import Alternative
from gpu_plan.planner.search.aside.forked import LeftUndoneError
from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.ranking.words import clearly_faster
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.finer import EXPANDS
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.workload.training import Checkpointing, Workload

_STEPS = 8
"""Of accumulation, as it is tried: what is done once a step is then an eighth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One change, and how its task is made."""

    words: str
    make: Callable[[], TrainingTask]
    cluster: Cluster
    way: Way | None = None
    """In which words, on the same devices."""
    for_speed: bool = False
    """Whether speed is all that it is for: it takes memory."""

    @property
    def same_family(self) -> bool:
        """Whether the plan's own family is looked at first."""
        return self.way is None or not self.way.adapts


@dataclass(slots=True)
class _Silence:
    """What says nothing of a change, or leaves it undone where something would have to be said or traced."""

    leaves: bool = False

    def __call__(self, _: str) -> None:
        if self.leaves:
            raise LeftUndoneError


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What a change comes to."""

    alternative: Alternative | None = None
    """None where it does not fit, makes no sense or is not at hand."""
    evaluated: int = 0
    untraced: bool = False
    """Whether it would take a trace of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is asked beside a plan: changes, each of which may be looked at by itself."""

    job: Job
    best: StepJudgement
    provider: TraceProvider
    changes: tuple[_Change, ...]
    traced: bool
    silence: _Silence

    def elsewhere(self, place: int) -> Came | None:
        """What one comes to, in another process, which traces nothing: None where that would be needed."""
        self.silence.leaves = True
        self.provider.note = self.silence
        if not self.at_hand(self.changes[place]):
            return None
        self.provider.at_hand = True
        return _came(self.changes[place], self.best, self.job)

    def here(self, place: int) -> Came:
        """What one comes to."""
        return _came(self.changes[place], self.best, self.job)

    def at_hand(self, change: _Change) -> bool:
        """Whether only what is at hand is looked at for it."""
        makes_room = change.way is not None and change.way.makes_room and _last_resort(self.best)
        return not (self.traced or makes_room)


def questions_beside(job: Job, best: object, *, traced: bool = False) -> Questions | None:
    """What is asked of a training job of a model by name; of others nothing: a script runs as it is written.

    With `traced` whatever it takes is traced, and everything that fits is told, the most useful first.
    """
    task = job.task
    if not isinstance(task, TrainingTask) or not isinstance(best, StepJudgement):
        return None
    provider, silence = task.evaluator.provider, _Silence()
    if not isinstance(provider, TraceProvider) or job.cluster.gpu.is_cpu:
        return None
    changes = tuple(_changes(job, task, best, provider, silence, traced=traced))
    return Questions(job=job, best=best, provider=provider, changes=changes, traced=traced, silence=silence)


def beside(questions: Questions | None, ahead: Callable[[int], Came | None] = lambda _: None) -> Beside:
    """What the changes come to; `ahead` gives what another process worked out of one."""
    found = Beside()
    if questions is None:
        return found
    job, best, provider, traced = questions.job, questions.best, questions.provider, questions.traced
    before = provider.at_hand
    gains: list[Gain] = []
    alone: list[Way] = []
    alike: list[_Change] = []
    try:
        for place, change in enumerate(questions.changes):
            way = change.way
            if way is not None and any(way.has_all_of(less) for less in alone):
                continue  # less than this does without the node's RAM already
            alike += [change] if way is not None and way.same_training else []
            provider.at_hand = questions.at_hand(change)
            gain = _gain(change, ahead(place) or questions.here(place), questions, found)
            if gain is not None and not (change.for_speed and gain.cheaper < LEAST):
                gains.append(gain)
                alone += [way] if way is not None and gain.spares_host else []
        if best.offloads and not any(gain.spares_host and gain.same_training for gain in gains):
            found.may_do_without = next(filter(None, (_may_do_without(change, best) for change in alike)), None)
    finally:
        provider.at_hand = before
    found.found = in_order(gains) if traced else most_useful(gains, MOST)
    same = [gain for gain in gains if gain.spares_host and gain.same_training and gain.cluster == job.cluster]
    found.same_without_host = min(same, key=lambda gain: gain.rank).alternative if same else None
    return found


def _gain(change: _Change, came: Came, questions: Questions, found: Beside) -> Gain | None:
    """A change as it is told; None where it is not."""
    found.evaluated += came.evaluated
    found.untraced += [change.words] if came.untraced else []
    if came.alternative is None:
        return None
    return Gain(
        alternative=came.alternative,
        cluster=change.cluster,
        best=questions.best,
        beside=questions.job.cluster,
        same_training=change.way is not None and change.way.same_training,
    )


def _came(change: _Change, best: StepJudgement, job: Job) -> Came:
    task: TrainingTask | None = None
    try:
        task = change.make()
        counted = task.evaluator.evaluated
        judgement = _judged(task, best, change)
        evaluated = task.evaluator.evaluated - counted
    except NotTraceableError:
        let_go(task, job)
        return Came(untraced=True)
    except (PlanError, CannotSplitError):
        let_go(task, job)
        return Came()
    if judgement is None:
        let_go(task, job)
        return Came(evaluated=evaluated)
    alternative = alternative_of(change.words, task, judgement, change.cluster, way=change.way)
    let_go(task, job)
    return Came(alternative=alternative, evaluated=evaluated)


def _may_do_without(change: _Change, best: StepJudgement) -> tuple[str, StepJudgement] | None:
    """A change with the fastest plan that may fit without the node's RAM, of ranks that have samples of their own and
    compute as much again as they can; None where there is none, or where it is hardly faster than the best."""
    try:
        task = change.make()
        plain = [family for family in task.families() if _keeps_nothing(family) and task.refusal(family) is None]
        known = [task.explore(family, exhaustive=False).best for family in plain]
    except (NotTraceableError, PlanError, CannotSplitError):
        return None
    fastest = min((one for one in known if one is not None), key=lambda one: one.expected_seconds, default=None)
    return None if fastest is None or not clearly_faster(fastest, best) else (change.words, fastest)


def _keeps_nothing(family: Family) -> bool:
    whole = family.copy_ranks == 1 and family.layout is None and family.pipeline is None and family.expert_parallel == 1
    return whole and family.offload is Offload.NONE and family.checkpointing is Checkpointing.FULL


def _judged(task: TrainingTask, best: StepJudgement, change: _Change) -> StepJudgement | None:
    """The plan's own family where it fits there too; else the simplest way that does.

    Beside a last resort, the faster of the two as times count: what makes room may do without.
    """
    own = None
    for family in _own(best.family) if change.same_family else ():
        if own is None and task.refusal(family) is None:
            own = task.fits_best(family)
    if own is not None and not _last_resort(best):
        return own
    simplest = at_its_batch(task)
    found = [one for one in (own, simplest) if isinstance(one, StepJudgement)]
    return min(found, key=lambda one: Ranking().expected(one), default=None)


def _own(family: Family) -> list[Family]:
    """A plan's family: where its segments grow as they are first, which another job may have room for."""
    plain = tuple(pair for pair in family.settings if pair != (EXPANDS, "true"))
    return [family] if plain == family.settings else [replace(family, settings=plain), family]


def _changes(
    job: Job, task: TrainingTask, best: StepJudgement, provider: TraceProvider, silence: _Silence, *, traced: bool
) -> Iterator[_Change]:
    """Words that are not given, more steps before an update, fewer, more and larger devices."""
    opened = _opened(provider, best, traced=traced)
    quiet = replace(job, note=silence, openers=Openers(traces=opened))
    for way in _ways(job, task.evaluator.workload, best):
        yield _Change(
            words=way.words,
            make=lambda way=way: _training(asked(quiet, way)),  # type: ignore[misc]
            cluster=job.cluster,
            way=way,
        )
    workload = task.evaluator.workload
    if job.cluster.world_size > 1 and workload.global_batch is None and workload.grad_accum is None:
        more = replace(workload, grad_accum=_STEPS, micro_batch=best.batch.micro_batch)
        yield _Change(
            words=f"--grad-accum {_STEPS}", make=lambda: task.other(more), cluster=job.cluster, for_speed=True
        )
    for kinds in (fewer_devices(job.cluster), more_devices(job.cluster), larger_devices(job)):
        for words, cluster in kinds:
            yield _Change(
                words=words,
                make=lambda cluster=cluster: task.on(cluster),  # type: ignore[misc]
                cluster=cluster,
            )
            break


def _ways(job: Job, workload: Workload, best: StepJudgement) -> Iterator[Way]:
    """Each by itself; beside a plan that offloads, what trains the same several at once as well."""
    yield from ways(job.request, workload, known=job.known)
    if best.offloads and not job.request.model.endswith(".py"):
        yield from (way for way in together(job.request, workload, job.known) if way.same_training)


def _last_resort(best: StepJudgement) -> bool:
    """Whether the plan is what is left where nothing simpler fits: it offloads, or ranks share a copy."""
    return best.offloads or best.family.copy_ranks > 1


def _training(task: object) -> TrainingTask:
    assert isinstance(task, TrainingTask)  # the job is one, and other words leave it one
    return task


def _opened(
    provider: TraceProvider, best: StepJudgement, *, traced: bool
) -> Callable[[Request, Cluster, ModelSource, Given, Note], TraceProvider]:
    """The job's own provider where the model is the same; one that traces adapters only where the plan offloads, and
    another attention, which is asked about where the class has a kernel that the plan does without."""

    def opened(request: Request, cluster: Cluster, source: ModelSource, given: Given, note: Note) -> TraceProvider:
        fresh = trace_provider(request, cluster, source, given, note)
        mine = None if provider.adapter is None else provider.adapter.key()
        theirs = None if fresh.adapter is None else fresh.adapter.key()
        if (mine, provider.attention) == (theirs, fresh.attention):
            return provider
        # Weights are copied in each step, or scores written out: whatever does without is worth the time of a trace.
        worth = fresh.attention != provider.attention or (theirs is not None and _last_resort(best))
        fresh.at_hand = not traced and (not worth or source.kind == "factory")
        return fresh

    return opened
