"""One configuration, evaluated from kept traces: first the tensors' sums, then the simulated allocator.

The same values as `plan ... --pin` gives: by the same functions, without the search around them.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster, cluster_document
from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.options.training.workload import make_workload
from gpu_plan.planner.plan.document import PlanDocument, TensorLine, workload_document
from gpu_plan.planner.plan.drawn.lanes import Lane, lanes_of
from gpu_plan.planner.plan.figures import SpeedFigures
from gpu_plan.planner.search.aside.at_once import Aside
from gpu_plan.planner.search.document import candidate_of, memory_figures, model_facts, tensor_lines
from gpu_plan.planner.search.reasons import failure, fragmented
from gpu_plan.planner.search.shown.sections import Sections
from gpu_plan.planner.search.training.candidates import Batch, Family, batches, families
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.ranks.told import ranks_of
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.search.training.unlike.kinds import kinds_of, parts
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.events import IntArray
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.trace.storage import dump
from gpu_plan.planner.workload.training import Workload
from gpu_plan.reports.plan.added.rank_words import place_words
from gpu_plan.tui.engine.columns import columns
from gpu_plan.tui.engine.kept.providers import KeptTraces, Providers, UntracedError, Watched
from gpu_plan.tui.engine.kept.streams import KeptEvaluator, PipelineCache, StreamCache
from gpu_plan.tui.engine.messages import Picture, RankClass, TracePayload, Wanted
from gpu_plan.tui.engine.states import judged_states

if TYPE_CHECKING:
    from gpu_plan.tui.engine.kept.captures import Captures
    from gpu_plan.tui.engine.messages import CaptureParcel

T = TypeVar("T", bound=TraceProvider)

_KINDS = 5
"""Kinds of rank that are drawn."""

_LONG = 30_000
"""Events of a step whose layout is waited for: model states are shown before it."""
_MANY = 1500
"""Calls between ranks of a micro step whose time is waited for as well."""

Breakable = Callable[[], AbstractContextManager[None]]
"""Around long work that keeps nothing half done: a newer question may end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A request with everything that it takes to judge it."""

    source: ModelSource
    cluster: Cluster
    spec: ModelSpec
    workload: Workload
    evaluator: KeptEvaluator
    provider: Watched
    family: Family
    batch: Batch
    request: Request


class Replays(Generic[T]):
    """Evaluates configurations; what each strategy makes of a trace is kept for the next micro batch."""

    def __init__(
        self, providers: Providers[T], captures: "Captures | None" = None, breakable: Breakable = nullcontext
    ) -> None:
        self._providers, self._captures, self._breakable = providers, captures, breakable
        self._streams, self._pipelines, self._speed = StreamCache(), PipelineCache(), RooflineModel()
        self._begun: Iterator[None] = iter(())
        """What the last picture took longest for: as long as it is here, it can be gone on with."""

    def pictures(self, request: Request, wanted: Wanted = "each") -> Iterator[Picture]:
        """The picture from sums alone, then the exact one, then that with every kind of rank where they are not alike;
        before them that of model states alone, where sums would be waited for. Raises PlanError as the main job, or
        UntracedError."""
        setup, states = self._setup(request), None
        if wanted != "exact" and self._waits(setup):
            with self._breakable():
                states = _of_states(setup)
            if states is not None:
                yield states
        if wanted == "exact" or states is not None:
            self._walk(setup)
        with self._breakable():
            judgement = setup.evaluator.judge(setup.family, setup.batch)
            reason, _ = failure(setup.evaluator, judgement), judgement.time
        if wanted != "exact" and states is None:
            yield self._sums(setup, judgement, reason)
        if wanted == "first":
            return
        runs = _Runs(setup.evaluator, judgement)  # not beside the first picture, which would wait for the interpreter
        try:
            if states is not None:
                yield self._sums(setup, judgement, reason)
            with self._breakable():
                speed = TrainingTask(setup.evaluator).speed(judgement)
                simulated, blocks = runs.first()
                shown, ranks = columns(simulated.plan.stream, blocks), _ranks(simulated)
                runs.wait()
                document = _document(setup, simulated, reason, speed=speed)
                exact = Picture(document=document, exact=True, columns=shown, ranks=ranks)
            yield exact
        finally:
            runs.leave()
        with self._breakable():
            kinds = _kinds(setup.evaluator, simulated)
        if kinds:
            yield replace(exact, ranks=kinds)

    def _sums(self, setup: Setup, judgement: StepJudgement, reason: str | None) -> Picture:
        """The tensors' sums alone."""
        with self._breakable():
            document = _document(setup, _briefly(judgement), reason)
            return Picture(document=document, exact=False, ranks=_ranks(judgement))

    @staticmethod
    def _waits(setup: Setup) -> bool:
        """Whether the trace has to be made, or a long step to be laid out or timed."""
        evaluator, family, batch = setup.evaluator, setup.family, setup.batch
        if _is_staged(family):
            return True
        try:
            # Reading a trace is not broken off: whoever keeps it would lose it.
            trace = evaluator.provider.trace(evaluator.variant(family), batch.micro_batch)
        except UntracedError:
            return True
        if len(trace.kind) * min(batch.accumulation_steps, 2) <= _LONG:
            return False
        plan = evaluator.kept_plan(family, batch, trace)
        return plan is None or sum(call.count for call in plan.collectives) > _MANY

    def prepared(self, request: Request) -> Iterator[None]:
        """What takes longest of a configuration's layout, piece by piece, before anybody asks for its picture; it is
        kept. Raises as `pictures`."""
        yield from _pieces(self._setup(request))

    def _walk(self, setup: Setup) -> None:
        """The same for the picture itself: a newer question leaves what is begun as it is, and may go on with it."""
        pieces = _pieces(setup)
        for _ in pieces:
            self._begun = pieces  # the one before stands until here: this one may go on with it
            with self._breakable():
                pass
        self._begun = iter(())

    def tensors(self, request: Request) -> tuple[TensorLine, ...]:
        """All tensors at the peak of the exact picture. Raises as `pictures`."""
        setup = self._setup(request)
        exact, blocks = setup.evaluator.simulate_blocks(setup.evaluator.judge(setup.family, setup.batch))
        return tensor_lines(exact, blocks=blocks)

    def lanes(self, request: Request) -> tuple[Lane, ...]:
        """The step, stream by stream. Raises as `pictures`."""
        setup = self._setup(request)
        schedule = setup.evaluator.judge(setup.family, setup.batch).schedule
        return () if schedule is None else lanes_of(schedule(""))

    def parcel(self, request: Request, note: Note, check: Callable[[], None]) -> "TracePayload | CaptureParcel":
        """The traces that a request's picture replays. Raises as `pictures`, and whatever `check` does."""
        setup = self._setup(request, note, check)
        evaluator, batch = setup.evaluator, setup.batch
        for variant in () if _is_staged(setup.family) else parts(evaluator, setup.family, batch):
            evaluator.provider.trace(variant, batch.micro_batch)
        if _is_staged(setup.family) or setup.workload.settings:
            evaluator.judge(setup.family, batch)  # which stages, and what is evaluated between steps, only this asks
        if self._captures is not None and setup.source.kind == "script":
            return self._captures.parcel(request)
        traces = tuple((key, dump(trace)) for key, trace in setup.provider.used())
        return TracePayload(request=request, spec=setup.spec, traces=traces)

    def take(self, parcel: TracePayload) -> None:
        """Keeps a trace that another process made."""
        request = parcel.request
        cluster, source = find_cluster(request.gpus, request.settings), self._providers.source(request)
        given = read_given(dict(request.words), request.settings)
        provider = self._providers.open(request, cluster, source, given, lambda _: None)
        if isinstance(provider, KeptTraces):
            provider.take(parcel)

    def take_captures(self, parcel: "CaptureParcel") -> None:
        """Keeps what a training script was seen to do in another process."""
        if self._captures is not None:
            self._captures.take(parcel, self._providers.source(parcel.request))

    def _setup(self, request: Request, note: Note = lambda _: None, check: Callable[[], None] = lambda: None) -> Setup:
        cluster = find_cluster(request.gpus, request.settings)
        source = self._providers.source(request)
        if source.kind == "job":
            raise UsageError(f"{source.id} is a job document, and one model is explored: `plan {source.id}` plans it")
        given = read_given(dict(request.words), request.settings)
        if source.kind == "script":
            # Imported only where a script is explored.
            from gpu_plan.planner.capture.job import captured_job

            assert self._captures is not None
            captured, spec, workload = captured_job(
                request, cluster, source, given, note, self._captures.opening(check)
            )
            provider = Watched(captured, check)
        else:
            provider = Watched(self._providers.open(request, cluster, source, given, note), check)
            spec = provider.spec()
            workload = make_workload(given, True, cluster, spec)
        evaluator = KeptEvaluator(
            provider=provider,
            workload=workload,
            cluster=cluster,
            speed=self._speed,
            host_limit=cluster.host_ram_bytes,
            stored=None if source.stored is None else frozenset(source.stored.by_dtype),
        )
        evaluator.kept_streams = self._streams
        evaluator.kept_pipelines = self._pipelines.get(provider.inner, request.gpus, workload)
        family = next(families(workload, cluster, spec.can_checkpoint), None)
        if family is None:
            raise UsageError("no kind of plan is left by these options: change one of them")
        batch = batches(workload, cluster.world_size)[0]
        refusal = TrainingTask(evaluator).refusal(family)
        if refusal is not None:
            raise UsageError(f"{family.strategy.title}: {refusal}: change that option or leave it out")
        return Setup(
            source=source, cluster=cluster, spec=spec, workload=workload, evaluator=evaluator, provider=provider,
            family=family, batch=batch, request=request,
        )  # fmt: skip


def _pieces(setup: Setup) -> Iterator[None]:
    """What takes longest of its layout; nothing where that is kept."""
    evaluator, family, batch = setup.evaluator, setup.family, setup.batch
    if not _is_staged(family):
        trace = evaluator.provider.trace(evaluator.variant(family), batch.micro_batch)
        if evaluator.kept_plan(family, batch, trace) is None:
            yield from family.strategy.prepares(evaluator.context(family, min(batch.accumulation_steps, 2), trace))


def _is_staged(family: Family) -> bool:
    """Whether ranks hold stages, or Megatron-core's parts: each is traced for itself."""
    return family.pipeline is not None or family.layout is not None


def _of_states(setup: Setup) -> Picture | None:
    """What model states alone decide; None where they are not known without a trace."""
    judged, task = judged_states(setup.evaluator, setup.family, setup.batch), TrainingTask(setup.evaluator)
    if judged is None:
        return None
    told = Sections(
        memory=memory_figures(judged, task.host(judged)),
        speed=None,
        details=task.details(judged, lost=True, best=False),
        explain=None,
    )
    document = _document(setup, judged, failure(setup.evaluator, judged), told)
    return Picture(document=document, exact=False, states_only=True, ranks=_ranks(judged)[:1])


class _Runs:
    """The allocator's runs of a configuration, made while its sums are told and drawn."""

    def __init__(self, evaluator: KeptEvaluator, judgement: StepJudgement) -> None:
        self._first = Aside(lambda: evaluator.simulate_blocks(judgement))
        self._others = Aside(self._every)

    def first(self) -> tuple[StepJudgement, IntArray]:
        """As soon as it is there, what `simulate_blocks` gives."""
        return self._first.result()

    def wait(self) -> None:
        """For all of them: the judgement then knows what it may come to."""
        self._others.result()

    def leave(self) -> None:
        """Nobody waits for them any more."""
        self._first.leave()
        self._others.leave()

    def _every(self) -> None:
        known = self._first.result()[0].simulated
        if known is not None and known.extremes is not None:
            known.extremes()


def _briefly(judgement: StepJudgement) -> StepJudgement:
    """The same, of whose time is told how long a step takes, not what each degree sends in it."""
    brief = replace(judgement.time, degrees=None)
    return replace(judgement, timed=lambda: brief)


def _document(
    setup: Setup,
    judgement: StepJudgement,
    reason: str | None,
    told: Sections | None = None,
    speed: SpeedFigures | None = None,
) -> PlanDocument:
    """`reason`: why the tensors alone already say no. `told`: what is said of it in place of all that can be; `speed`
    where that is known."""
    if reason is None and judgement.verdict == "no":
        reason = fragmented(judgement)
    task = TrainingTask(setup.evaluator)
    sections = told or Sections(
        memory=memory_figures(judgement, task.host(judgement)),
        speed=speed or task.speed(judgement),
        details=task.details(judgement, lost=reason is not None, best=False),
        explain=None,
    )
    candidate = candidate_of(task, judgement, reason, ahead=lambda: sections)
    return PlanDocument(
        command=setup.request.command,
        created_with=dict(versions()),
        model=model_facts(setup.source, setup.spec),
        cluster=cluster_document(setup.cluster),
        workload=workload_document(setup.workload),
        plans=(candidate,) if reason is None else (),
        rejected=() if reason is None else (candidate,),
    )


def _kinds(evaluator: Evaluator, judged: StepJudgement) -> tuple[RankClass, ...]:
    """Of ranks that are not alike, the kind that decides first; none where all are alike, or not every one is told."""
    told = judged.family.strategy.traits.every_rank and evaluator.cluster.world_size > 1
    if not told or judged.states_only or len(list(kinds_of(evaluator, judged.family, judged.batch))) < 2:
        return ()
    found = sorted(ranks_of(evaluator, judged), key=lambda one: one.peak_allocated_bytes, reverse=True)
    return tuple(
        RankClass(
            name=f"{'rank' if one.count * one.replicas == 1 else 'each of ranks'} {place_words(one)}",
            at_peak=tuple(one.at_peak.items().items()),
            peak_allocated_bytes=one.peak_allocated_bytes,
        )
        for one in found[:_KINDS]
    )


def _ranks(judgement: StepJudgement) -> tuple[RankClass, ...]:
    """The worst rank first, then others that go through something else."""
    found = []
    for plan in (judgement.plan, *judgement.plan.other_ranks):
        profile = judgement.profile if plan is judgement.plan else measure(plan.stream, judgement.batch.micro_batch)
        found.append(
            RankClass(
                name="",
                at_peak=tuple((str(category), size) for category, size in profile.at_peak.items()),
                peak_allocated_bytes=profile.peak_allocated_bytes,
            )
        )
    worst, *others = found
    named = [replace(worst, name="worst rank" if others else "every rank")]
    return (*named, *(replace(other, name="another rank") for other in others))
