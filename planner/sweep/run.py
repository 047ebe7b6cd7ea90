"""Runs a sweep: every value checked before any work, then one job after the other, traces shared (I/O)."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpu_plan.planner.errors import InputError, PlanError, UsageError
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.plan.document import PlanDocument
from gpu_plan.planner.sweep.axes import Axis, points
from gpu_plan.planner.sweep.document import SweepAxis, SweepDocument, SweepPoint, point_of, refused_point

MakeRequest = Callable[[Mapping[str, object]], Request]
"""From named values that are added to the other options to the request of one point; raises PlanError."""
Progress = Callable[[int, int], None]
"""Told how many points of how many are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A sweep's document, and each point's own, None where it was refused."""

    document: SweepDocument
    documents: tuple[PlanDocument | None, ...]


def run_sweep(
    axes: Sequence[Axis], make: MakeRequest, note: Note, *, command: str, progress: Progress = lambda done, of: None
) -> Swept:
    """Plans every point. A value that makes sense nowhere is refused before any work; points whose values do not go
    together are kept with the reason."""
    from gpu_plan.planner.cache_dir import versions

    spanned = points(axes)
    asked = [_ask(axes, values, make) for values in spanned]
    _check_values(axes, spanned, asked)
    _check_models(axes, asked)
    with _traces_kept(asked):
        found, documents = _plan_all(spanned, asked, note, progress)
    warnings = dict.fromkeys(text for document in documents if document is not None for text in document.warnings)
    told = SweepDocument(
        command=command,
        created_with=dict(versions()),
        axes=tuple(SweepAxis(name=axis.name, values=axis.values) for axis in axes),
        points=tuple(found),
        warnings=tuple(warnings),
    )
    return Swept(document=told, documents=tuple(documents))


def _plan_all(
    spanned: Sequence[tuple[str, ...]], asked: Sequence[Request | PlanError], note: Note, progress: Progress
) -> tuple[list[SweepPoint], list[PlanDocument | None]]:
    from gpu_plan.planner.job.run import run_job

    found: list[SweepPoint] = []
    documents: list[PlanDocument | None] = []
    for done, (values, request) in enumerate(zip(spanned, asked, strict=True)):
        progress(done, len(spanned))
        document = None
        if isinstance(request, Request):
            try:
                document = run_job(replace(request, use_cache=True), note).document
            except (UsageError, InputError) as problem:
                point = refused_point(values, request.command, str(problem))
            else:
                point = point_of(values, request.command, document)
        else:
            point = refused_point(values, "", str(request))
        found.append(point)
        documents.append(document)
    progress(len(spanned), len(spanned))
    return found, documents


@contextlib.contextmanager
def _traces_kept(asked: Sequence[Request | PlanError]) -> Iterator[None]:
    """Without the user's cache (`--no-cache`) points share one that goes with the sweep: each step is traced once."""
    if not any(isinstance(one, Request) and not one.use_cache for one in asked):
        yield
        return
    before = os.environ.get("GPU_PLAN_CACHE")
    with tempfile.TemporaryDirectory(prefix="plan-sweep-") as folder:
        os.environ["GPU_PLAN_CACHE"] = folder
        try:
            yield
        finally:
            del os.environ["GPU_PLAN_CACHE"]
            if before is not None:
                os.environ["GPU_PLAN_CACHE"] = before


def _ask(axes: Sequence[Axis], values: tuple[str, ...], make: MakeRequest) -> Request | PlanError:
    """The request of a point, checked as far as can be without work; else what is wrong with it."""
    pairs = tuple(zip(axes, values, strict=True))
    settings = {axis.name: value for axis, value in pairs if axis.is_setting}
    try:
        request = make(
            {**{axis.name: axis.given(value) for axis, value in pairs if not axis.is_setting}, "set": settings}
        )
        _check(request)
    except (UsageError, InputError) as problem:
        return problem
    return request


def _check(request: Request) -> None:
    from gpu_plan.planner.options.cluster import find_cluster
    from gpu_plan.planner.options.task import is_inference

    find_cluster(request.gpus)
    words = dict(request.words)
    if is_inference(words):
        from gpu_plan.planner.options.generation import read_given as read_generation

        read_generation(words, request.settings)
        return
    from gpu_plan.planner.options.training.reading import read_given

    read_given(dict(words), request.settings)


def _check_values(
    axes: Sequence[Axis], spanned: Sequence[tuple[str, ...]], asked: Sequence[Request | PlanError]
) -> None:
    """The first error of a value that no point can use."""
    for column, axis in enumerate(axes):
        for value in axis.values:
            mine = [one for values, one in zip(spanned, asked, strict=True) if values[column] == value]
            errors = [one for one in mine if isinstance(one, PlanError)]
            if len(errors) == len(mine):
                raise UsageError(f"--sweep {axis.name}={value[:60]}: {errors[0]}")


def _check_models(axes: Sequence[Axis], asked: Sequence[Request | PlanError]) -> None:
    """Every model of the sweep is found before the first is planned."""
    if not any(axis.name == "model" for axis in axes):
        return
    from gpu_plan.planner.model.source.resolve import resolve

    models: Mapping[str, Request] = {one.model: one for one in asked if isinstance(one, Request)}
    for model, request in models.items():
        resolve(model, trust_remote_code=request.trust_remote_code, revision=request.revision)
