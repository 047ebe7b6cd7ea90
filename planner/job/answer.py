"""The part of the main job that searches: imported only when no kept plan answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.errors import StoppedError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.alternatives import (
    Beside,
    Came,
    Job,
    Questions,
    Tried,
    alternatives,
    beside,
    by_trainer,
    first_line,
    nearest,
    questions_beside,
    with_what_degrees_buy,
)
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.request import Answer, Note, Request
from gpu_plan.planner.options.wishes.read import Wishes, read_wishes
from gpu_plan.planner.plain.heap import give_back
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.document import Assumption, JobFigures, PlanDocument
from gpu_plan.planner.search.aside.forked import beside as beside_here
from gpu_plan.planner.search.aside.telling import Telling
from gpu_plan.planner.search.document import document
from gpu_plan.planner.search.predicted import predicted_schedule, predicted_snapshot, predicted_timeline
from gpu_plan.planner.search.search import Found, search
from gpu_plan.planner.search.shown.sections import Sections
from gpu_plan.planner.search.task import AnyTask
from gpu_plan.planner.search.training.elsewhere.families import elsewhere_of
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.search.training.widths.conversions import widened
from gpu_plan.planner.search.underway.known import known_so_far
from gpu_plan.planner.search.underway.watch import Watcher
from gpu_plan.planner.speed.goodput import goodput
from gpu_plan.planner.strategy.saved_files import SavedFiles
from gpu_plan.planner.units import format_count, format_dollars, format_gib, format_hours
from gpu_plan.planner.upstream.moved import moved_line


def plan_from_scratch(
    request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers, watch: Watcher
) -> Answer:
    """Searches, and says what was found; `watch` is told meanwhile."""
    with Telling() as telling:
        return _answer(request, cluster, source, note, openers, watch, telling)


def _answer(
    request: Request,
    cluster: Cluster,
    source: ModelSource,
    note: Note,
    openers: Openers,
    watch: Watcher,
    telling: Telling,
) -> Answer:
    wishes = read_wishes(dict(request.words))
    request, job, found = _first_search(request, cluster, source, note, openers, watch, telling)
    job, found, shortened = _shortened(job, found, request, wishes)
    assumptions, evaluated = _assumptions(job, found), job.task.evaluator.evaluated
    asked = Job(request=request, cluster=cluster, source=source, note=note, openers=openers, task=job.task)
    watch.advises()
    questions = None if shortened else _questions(asked, found)
    with _meanwhile(job, found, request, questions, telling) as ahead:
        try:
            # What else could be done is asked of the longest samples: a plan that holds for others is no answer there.
            other, tried = (Beside(), None) if shortened else _else(asked, found, questions, ahead.change)
        except KeyboardInterrupt:
            kinds = found.explored + len(found.left_out) + len(found.inapplicable)
            raise StoppedError(known_so_far(found.plans, found.rejected, looked_at=kinds, of=kinds)) from None
        answered = document(
            found,
            task=job.task,
            source=source,
            spec=job.spec,
            command=request.command,
            versions=versions(),
            assumptions=assumptions,
            warnings=(*shortened, *job.warnings(found), *filter(None, [moved_line()])),
            headline=job.headline or (None if found.best is None else first_line(other, found.plans, job.task)),
            change=None if tried is None or found.best is not None else nearest(tried),
            alternatives=tuple(other.found if tried is None else tried.found),
            evaluated=evaluated,
            for_alternatives=other.evaluated,
            untraced=tuple(other.untraced),
            explain=_explained(request),
            ahead=ahead.section,
        )
    if request.explain and isinstance(job.task, TrainingTask):
        answered = with_what_degrees_buy(answered, asked)
    if wishes.tokens is not None:
        answered = replace(answered, whole_job=_whole_job(answered, wishes.tokens, cluster, _saved(found, job.task)))
        answered = replace(answered, warnings=(*answered.warnings, *_beyond(answered.whole_job, wishes)))
    elif "eval.every" in _settings(answered):
        told = "eval.every counts in the hours of a whole job: --tokens or --epochs says how long it is"
        answered = replace(answered, warnings=(*answered.warnings, told))
    drawn = request.plot or (request.timeline and job.replayed and not cluster.gpu.is_cpu)
    return Answer(
        document=answered,
        snapshot=predicted_snapshot(found, request.pinned) if request.snapshot else None,
        timeline=predicted_timeline(found, request.pinned, job.spec.id) if drawn else None,
        schedule=predicted_schedule(found, request.pinned, job.spec.id)
        if request.schedule or request.timeline
        else None,
        places=job.places(),
        widened=widened(found) if request.follow else {},
    )


def _explained(request: Request) -> int:
    """Kinds of tensors at the peak that are named."""
    return request.explained if request.explain else 0


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What another process works out meanwhile; None of what it does not."""

    answer: Callable[[int], Any]
    changes: int
    """So many come first, then what a document says of candidates."""
    told: Callable[[int], Sections | None]
    """What it says of one, as far as that was begun before."""

    def change(self, place: int) -> Came | None:
        """What one of the changes comes to."""
        came: Came | None = self.answer(place)
        return came

    def section(self, place: int) -> Sections | None:
        """What a document says of a candidate."""
        sections: Sections | None = self.told(place) or self.answer(self.changes + place)
        return sections


@contextmanager
def _meanwhile(
    job: Prepared, found: Found[Any], request: Request, questions: Questions | None, telling: Telling
) -> Iterator[_Ahead]:
    """What a document says of candidates, and what else could be done, as another process works them out from their
    end while this one begins at their front."""
    elsewhere = elsewhere_of(job.task, telling)
    shown = () if elsewhere is None else elsewhere.shown(found)
    changes = 0 if questions is None or elsewhere is None else len(questions.changes)

    def work(place: int) -> object:
        if questions is not None and place < changes:
            return questions.elsewhere(place)
        return None if elsewhere is None else elsewhere.sections(found, place - changes, _explained(request))

    def told(place: int) -> Sections | None:
        return None if elsewhere is None else elsewhere.told(found, place)

    parts = [(place,) for place in range(changes)] + [(changes + place,) for group in shown for place in group]
    with beside_here(parts, work) as aside:
        yield _Ahead(aside.answer, changes, told)


def _questions(job: Job, found: Found[Any]) -> Questions | None:
    """What is asked beside a plan that fits, where only what is at hand is."""
    request = job.request
    asked = request.suggest and request.advise and not (request.pinned or request.alternatives)
    return questions_beside(job, found.best) if asked and found.best is not None else None


def _first_search(
    request: Request,
    cluster: Cluster,
    source: ModelSource,
    note: Note,
    openers: Openers,
    watch: Watcher,
    telling: Telling,
) -> tuple[Request, Prepared, Found[Any]]:
    """The job as it was asked for and what was found; where nobody named a trainer, maybe that of one."""
    job = prepared(request, cluster, source, note, openers)
    watch.model(job.spec)
    prefer = read_wishes(dict(request.words)).prefer
    found: Found[Any] = search(
        job.task,
        exhaustive=request.pinned,
        prefer=prefer,
        watch=watch,
        elsewhere=None if request.explain else elsewhere_of(job.task, telling),
    )
    if isinstance(job.task, TrainingTask):
        job.task.forget()  # what was found names its own ranks
    give_back()
    trained = by_trainer(
        request,
        cluster,
        job,
        found,
        prepare=lambda asked: prepared(asked, cluster, source, note, openers),
        search=lambda other: search(other.task, prefer=prefer),
    )
    return (request, job, found) if trained is None else (trained.request, trained.job, trained.found)


def _shortened(
    job: Prepared, found: Found[Any], request: Request, wishes: Wishes
) -> tuple[Prepared, Found[Any], tuple[str, ...]]:
    """Where the longest samples leave no room, and passes hold no padding: the job with samples for which there is;
    and what is said of it."""
    if found.plans:
        return job, found, ()
    least = min((lost.judgement for lost in found.rejected), key=lambda one: one.low_bytes, default=None)
    for other in job.shorter():
        again: Found[Any] = search(other.task, exhaustive=request.pinned, prefer=wishes.prefer)
        if again.plans and least is not None:
            told = (
                f"samples of full length do not fit: {least.full_title} needs {format_gib(least.expected_bytes)} GiB of"
                f" {format_gib(least.capacity_bytes)}; these plans are of samples of"
                f" {other.task.evaluator.workload.seq_len:,} tokens on average"
            )
            return other, again, (told,)
    return job, found, ()


def _else(
    job: Job, found: Found[Any], questions: Questions | None, ahead: Callable[[int], Came | None]
) -> tuple[Beside, Tried | None]:
    """What else could be done, as far as it was asked for; what was tried where nothing fits, or all was asked for."""
    request, other = job.request, Beside()
    if not request.suggest:
        return other, None
    everything = found.best is None or request.alternatives
    if not request.pinned and (request.advise or everything) and not isinstance(job.task, TrainingTask):
        from gpu_plan.planner.job.alternatives.generating import beside_generation

        first = next(iter((*found.plans, *(lost.judgement for lost in found.rejected))), None)
        other = beside_generation(job, first, fits=found.best is not None)
    if found.best is not None and request.alternatives and not request.pinned:
        other = beside(questions_beside(job, found.best, traced=True)) if not other.found else other
        if isinstance(job.task, TrainingTask) and other.found:
            return other, None
    if everything:
        tried = alternatives(job, fits=found.best is not None, known=other.found)
        return replace(other, untraced=tried.left), tried
    if request.advise and not request.pinned and not other.found:
        other = beside(questions, ahead)
    return other, None


def _saved(found: Found[Any], task: AnyTask) -> SavedFiles | None:
    """What the best plan of a training job, tight or not, leaves on disk."""
    best = found.plans[0] if found.plans else None
    return task.saved(best) if isinstance(best, StepJudgement) and isinstance(task, TrainingTask) else None


def _whole_job(answered: PlanDocument, tokens: int, cluster: Cluster, saved: SavedFiles | None) -> JobFigures | None:
    """What so many tokens take under the best plan; None where nothing fits, or nothing is counted in tokens."""
    speed = None if answered.best is None else answered.best.speed
    if speed is None or not speed.tokens_per_second_per_gpu:
        return None
    hours = tokens / (speed.tokens_per_second_per_gpu * cluster.world_size) / 3600
    price = answered.prices[0].usd_per_hour if answered.prices else None
    gpu_hours = hours * cluster.world_size
    beside = goodput(
        hours=hours,
        devices=cluster.world_size,
        nodes=cluster.nodes,
        checkpoint_bytes=0 if saved is None else saved.checkpoint_bytes,
    )
    return JobFigures(
        tokens=tokens,
        hours=hours,
        gpu_hours=gpu_hours,
        usd=None if price is None else gpu_hours * price,
        interruptions=beside.failures,
        checkpoint_every_seconds=beside.checkpoint_every_seconds,
        overhead_hours=beside.hours,
        evaluation_hours=_evaluation_hours(answered, hours),
        weights_bytes=None if saved is None else saved.weights_bytes,
        checkpoint_bytes=None if saved is None else saved.checkpoint_bytes,
    )


def _settings(document: PlanDocument) -> dict[str, str]:
    found = document.workload.get("settings")
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, Mapping) else {}


def _evaluation_hours(answered: PlanDocument, hours: float) -> float | None:
    """Hours of evaluations between the steps of so many hours; each takes what its samples take in a step's forward."""
    given = _settings(answered)
    plan = answered.best
    if plan is None or plan.speed is None or not {"eval.every", "eval.samples"} <= given.keys():
        return None
    speed = plan.speed
    samples = speed.samples_per_second * speed.step_seconds
    evaluation = speed.parts["forward"] * int(given["eval.samples"]) / samples
    return hours * evaluation / (speed.step_seconds * int(given["eval.every"]))


def _beyond(job: JobFigures | None, wishes: Wishes) -> Iterator[str]:
    """What a job takes beyond what was asked for, and what is left undone then."""
    if job is None:
        return
    if wishes.budget is not None and job.usd is None:
        yield "nothing is known of the budget: nobody printed a price for this machine (--price gives one)"
    elif wishes.budget is not None and job.usd is not None and job.usd > wishes.budget:
        part = format_count(round(job.tokens * wishes.budget / job.usd))
        yield (
            f"beyond the budget: {format_count(job.tokens)} tokens cost {format_dollars(job.usd)},"
            f" {format_dollars(wishes.budget)} pays for {part}; without --gpus machines are compared"
        )
    if wishes.deadline_seconds is not None and job.hours * 3600 > wishes.deadline_seconds:
        hours = wishes.deadline_seconds / 3600
        times = job.hours / hours
        yield (
            f"beyond the deadline: the job takes {format_hours(job.hours)} and has {format_hours(hours)};"
            f" {times:,.1f} times as many such GPUs would be in time if none waited for another"
        )


def _assumptions(job: Prepared, found: Found[Any]) -> tuple[Assumption, ...]:
    """What the best plan rests on, what every plan of the task does, then what this model's traces assume."""
    sites, notes = job.assumptions()
    best = found.plans[0] if found.plans else None
    read = (
        Assumption(text=f"host read {site}", basis="traced" if "follows from" in site else "assumed") for site in sites
    )
    return (
        *(() if best is None else _as(f"{best.title}: ", best.notes, "source")),
        *job.fixed,
        *read,
        *_as("", notes, "traced"),
        *job.settings,
    )


def _as(before: str, texts: Sequence[str], basis: Any) -> list[Assumption]:
    return [Assumption(text=f"{before}{text}", basis=basis) for text in texts]
