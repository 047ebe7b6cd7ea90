"""What else could be done about a generation: what the devices hold alone beside a plan that offloads, and a server."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.job.alternatives.changes import Job
from gpu_plan.planner.job.alternatives.found import MOST, Beside
from gpu_plan.planner.job.alternatives.tried import alternative_of
from gpu_plan.planner.job.alternatives.ways import Way, ways
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.options.serve.read import SETTINGS as SERVED_SETTINGS
from gpu_plan.planner.plan.document import Alternative
from gpu_plan.planner.search.generation.judgement import GenerationJudgement
from gpu_plan.planner.search.generation.limits import held_by_devices
from gpu_plan.planner.search.generation.task import GenerationTask
from gpu_plan.planner.serving.known import server_words
from gpu_plan.planner.strategy.generation.layout import Layout, layouts
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.shipped.needed import NotTraceableError

_CHUNK = "prefill.chunk"
_PIECES = (2048, 512, 128)
"""Tokens at once: as many as the first fill the devices, and their activations are small beside weights; fewer where
scores of attention stand in memory for each of them and the whole context."""
_SERVED = ("context", "precision", "kv-dtype", "quantize", "tp", "price", "host-ram")
"""Options of a generation that say the same of a server."""


def beside_generation(job: Job, first: object, *, fits: bool) -> Beside:
    """`first`: the plan that goes first, or what comes nearest where nothing `fits`."""
    found = Beside()
    task = job.task
    if not isinstance(task, GenerationTask) or not isinstance(first, GenerationJudgement) or job.cluster.gpu.is_cpu:
        return found
    counted = task.evaluator.evaluated
    short = first.offloads or not fits
    held = list(_on_devices(job, task)) if short else []
    found.found += held
    found.evaluated = task.evaluator.evaluated - counted
    found.found += _served(job, first, fewer_bits=short)
    asked = list(ways(job.request, known=job.known))
    other = [way for way in asked if {"attention", "precision"} & way.options.keys()]
    pieces = _in_pieces(job, first) if short else []
    found.found = [*_traced(job, other), *islice(_traced(job, pieces), 1), *found.found]
    asked = [way for way in asked if way not in other]
    if first.offloads and len(found.found) < MOST:
        # What copies its weights in each step is so slow that a trace of its own is worth its time.
        found.found += _traced(job, asked)
        asked = []
    whole = [one for one in found.found if one not in held]
    found.without_host = whole[0] if whole and first.offloads and fits else None
    found.found = found.found[:MOST]
    found.untraced = [way.words for way in asked]
    return found


def _on_devices(job: Job, task: GenerationTask) -> Iterator[Alternative]:
    """The longest context and the largest batch that the plainest layout without offloading holds."""
    workload = replace(task.evaluator.workload, offload="none", strategy=None)
    for size in ("context", "batch"):
        for layout in layouts(workload, job.cluster):
            held = _held(task, layout, size)
            if held is not None:
                value = held.context if size == "context" else held.batch
                yield alternative_of(f"--{size} {value}", task, held, job.cluster)
                break


def _held(task: GenerationTask, layout: Layout, size: str) -> GenerationJudgement | None:
    if task.evaluator.refuses(layout) is not None:
        return None
    try:
        return held_by_devices(task.evaluator, layout, size)
    except NotTraceableError:
        return None


def _in_pieces(job: Job, first: GenerationJudgement) -> list[Way]:
    """A prompt that is taken piece by piece, where its one pass is what decides, the largest pieces first; into a cache
    that is there from the beginning, since one that grows by every piece leaves holes behind."""
    given = any(text.startswith(_CHUNK) for text in job.request.settings)
    if given or first.profile.phase_of_peak is not Phase.PREFILL:
        return []
    return [
        Way(settings={"cache.implementation": "static", _CHUNK: str(piece)}, same_training=True)
        for piece in _PIECES
        if first.prompt >= 2 * piece
    ]


def _traced(job: Job, asked: Sequence[Way]) -> Iterator[Alternative]:
    """Weights of fewer bits or another attention, where the devices hold that alone."""
    for way in asked:
        try:
            task = prepared(way.asked_of(job.request), job.cluster, job.source, lambda _: None, job.openers).task
            best = task.fitting()
        except (PlanError, CannotSplitError):
            continue
        if best is not None and not best.offloads:
            yield alternative_of(way.words, task, best, job.cluster, way=way)


def _served(job: Job, first: GenerationJudgement, *, fewer_bits: bool) -> Iterator[Alternative]:
    """The same under a server, which computes its own memory: as many requests at once as samples were asked for. Where
    the devices do not hold the weights as they are, in fewer bits as a server multiplies them."""
    plain = _under_server(job, first, Way())
    if plain is not None:
        yield plain
    if plain is not None or not fewer_bits:
        return
    words = {**dict(job.request.words), "server": server_words()[0]}
    asked = replace(job.request, words=tuple(words.items()))
    for way in ways(asked, known=job.known):
        if "quantize" in way.options:
            served = _under_server(job, first, way)
            if served is not None:
                yield served


def _under_server(job: Job, first: GenerationJudgement, way: Way) -> Alternative | None:
    """None where the devices do not hold it alone, or the server does not run it."""
    given = dict(job.request.words)
    kept = {name: given[name] for name in _SERVED if name in given}
    context = kept.setdefault("context", str(first.context))
    words = {"task": "infer", "server": server_words()[0], **kept, **way.options}
    if first.samples > 1:
        words["concurrency"] = str(first.samples)
    said = tuple(text for text in job.request.settings if text.partition("=")[0] in SERVED_SETTINGS)
    request = replace(job.request, words=tuple(words.items()), settings=said, pinned=False)
    try:
        task = prepared(request, job.cluster, job.source, lambda _: None, job.openers).task
        best = task.fitting()
    except (PlanError, CannotSplitError):
        return None
    if best is None or best.offloads:
        return None
    many = f" --concurrency {first.samples}" if first.samples > 1 else ""
    told = "" if "context" in given else f" --context {context}"
    changed = f" {way.words}" if way.options else ""
    served = alternative_of(f"--server {server_words()[0]}{changed}{told}{many}", task, best, job.cluster)
    return replace(served, at_most=True)
