"""The largest model of the catalog that fits: of a family, or of all decoders."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpu_plan.planner.errors import PlanError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.model.catalog_index import CatalogEntry, find_entry, load_index
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.trace.parallel.errors import CannotSplitError


def kin_of(model: str) -> list[CatalogEntry]:
    """Models of one family and kind, smallest first, of equal ones `model` last. UsageError where it is unknown."""
    entry = find_entry(model)
    if entry is None:
        raise UsageError(f"--max model goes through a family of the catalog, and {model} is of none: `plan models`")
    kin = [other for other in load_index().values() if other.family == entry.family and other.kind == entry.kind]
    known = (one for one in kin if one.native and one.parameters)
    return sorted(known, key=lambda one: (one.parameters or 0, one.id == entry.id, one.id))


def largest_model(request: Request, cluster: Cluster, note: Note) -> tuple[str | None, str | None, list[str]]:
    """Id of the largest of the family that fits with how it is run, and the ids that do not, largest first.

    From the largest down: sizes alone do not order models, whose vocabularies and layers differ.
    """
    return first_that_fits(kin_of(request.model)[::-1], lambda entry: _plan(request, cluster, entry.id, note))


def first_that_fits(
    entries: Sequence[CatalogEntry], plan: Callable[[CatalogEntry], str | None]
) -> tuple[str | None, str | None, list[str]]:
    """The first entry with a plan, the plan, and the ids before it."""
    before: list[str] = []
    for entry in entries:
        found = plan(entry)
        if found is not None:
            return entry.id, found, before
        before.append(entry.id)
    return None, None, before


def _plan(request: Request, cluster: Cluster, model: str, note: Note) -> str | None:
    """How a model is run there; None where it does not fit or the job makes no sense for it."""
    try:
        source = resolve(model, trust_remote_code=request.trust_remote_code, revision=None)
        task = prepared(replace(request, model=model), cluster, source, note, Openers()).task
        found = task.fitting()
    except (PlanError, CannotSplitError):
        return None
    return None if found is None else task.words(found)
