"""What each degree of the chosen plan is good for: the same job without it, evaluated."""

from collections.abc import Mapping
from dataclasses import replace

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.job.alternatives.changes import Job
from gpu_plan.planner.job.alternatives.tried import at_its_batch
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.plan.document import Candidate, DegreeFigures, PlanDocument
from gpu_plan.planner.search.task import AnyTask
from gpu_plan.planner.trace.parallel.errors import CannotSplitError

_OPTIONS: Mapping[str, tuple[str, ...]] = {"tensor": ("tp", "sp"), "expert": ("ep",), "context": ("cp",)}
"""Options that ask for a degree. Replicas and data parallel are what is left of the devices without one."""
_NONE = "1"
_NOTHING_FITS = "nothing fits"


def with_what_degrees_buy(document: PlanDocument, job: Job) -> PlanDocument:
    """The document whose first plan says, for each degree within a layer, what the job would be without it.

    Otherwise alike where that fits, else the simplest way that fits, at the micro batch that serves it best. A step is
    traced anew for each; a script, which would be run anew, is left alone.
    """
    first = (document.plans or document.rejected)[:1]
    if not first or first[0].speed is None or job.request.model.endswith(".py"):
        return document
    speed, choice = first[0].speed, first[0].strategy
    alike = {
        "micro-batch": str(choice.micro_batch_size), "checkpointing": choice.checkpointing, "offload": choice.offload,
    }  # fmt: skip
    degrees = tuple(_bought(one, job, alike) if one.axis in _OPTIONS else one for one in speed.degrees)
    if degrees == speed.degrees:
        return document
    shown: Candidate = replace(first[0], speed=replace(speed, degrees=degrees))
    if document.plans:
        return replace(document, plans=(shown, *document.plans[1:]))
    return replace(document, rejected=(shown, *document.rejected[1:]))


def _bought(one: DegreeFigures, job: Job, alike: Mapping[str, str]) -> DegreeFigures:
    tried = False
    for added in (alike, {}):
        # A strategy that was asked for may not do without its degree: then another one does the rest.
        for left_out in ((), ("strategy",)):
            try:
                task = _task_without((*_OPTIONS[one.axis], *left_out), {**added, _OPTIONS[one.axis][0]: _NONE}, job)
                best = at_its_batch(task)
            except (PlanError, CannotSplitError):
                continue
            tried = True
            if best is not None:
                return replace(
                    one,
                    without=task.words(best),
                    without_device_used_bytes=best.expected_bytes,
                    without_samples_per_second=best.samples_per_second,
                )
    return replace(one, without=_NOTHING_FITS) if tried else one


def _task_without(options: tuple[str, ...], added: Mapping[str, str], job: Job) -> AnyTask:
    words = {key: value for key, value in dict(job.request.words).items() if key not in options}
    request = replace(job.request, words=tuple({**words, **added}.items()), pinned=False)
    return prepared(request, job.cluster, job.source, job.note, job.openers).task
