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
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.workload.training import Workload

_DECODERS = ("dense", "moe", "hybrid", "ssm")
"""Kinds of the catalog that generate text from text."""
_PACKED = 0.5
"""Bytes of an element in the fewest bits that a base is packed into (NF4, mxfp4)."""


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


def largest_decoder(request: Request, cluster: Cluster, note: Note) -> tuple[str | None, str | None, list[str]]:
    """The same of all decoders of the catalog, of a request without offloads.

    Those whose weights and optimizer states all GPUs together have no room for are passed over unasked, by what an
    element takes at least.
    """
    known = [one for one in load_index().values() if one.kind in _DECODERS and one.native and one.parameters]
    decoders = sorted(known, key=lambda one: (-(one.parameters or 0), one.id))
    workload = _workload(replace(request, model=decoders[-1].id), cluster, note)
    room = cluster.capacity_bytes * cluster.world_size
    possible = [one for one in decoders if (one.parameters or 0) * least_bytes(workload, one) <= room]
    return first_that_fits(possible or decoders[-1:], lambda entry: _plan(request, cluster, entry.id, note))


def on_devices_alone(request: Request) -> Request:
    """The request without offloads. UsageError where one is asked for, with which no size rules a model out."""
    if dict(request.words).get("offload", "none") != "none":
        raise UsageError(
            "--max model over the whole catalog asks what the GPUs alone hold: leave --offload out, or name a model"
            " whose family is gone through"
        )
    return replace(request, words=tuple({**dict(request.words), "offload": "none"}.items()))


def least_bytes(workload: Workload, entry: CatalogEntry) -> float:
    """Bytes that a parameter takes at least, on all devices together, of weights and optimizer states: a low bound,
    without gradients (some are freed as they come) and adapters."""
    peft, optimizer = workload.peft, workload.optimizer.traits
    if peft.adapts:
        return _PACKED if peft.quantises or entry.checkpoint_quant or workload.settings else 2.0
    pure = workload.precision.traits.is_pure
    states = 0.0 if optimizer.is_paged else optimizer.saved_bytes[1 if pure else 0]
    return (2.0 if pure else 4.0) + states


def _workload(request: Request, cluster: Cluster, note: Note) -> Workload:
    source = resolve(request.model, trust_remote_code=False, revision=None)
    task = prepared(request, cluster, source, note, Openers()).task
    assert isinstance(task, TrainingTask)  # --max is of training
    return task.evaluator.workload


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
