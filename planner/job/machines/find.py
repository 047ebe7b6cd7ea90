"""Every machine of the catalog, or of a list, on which a job fits."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.cluster import Cluster, node_size, parse_cluster
from gpu_plan.planner.hardware.machines import load_platforms
from gpu_plan.planner.job.alternatives import at_its_batch
from gpu_plan.planner.job.machines.figures import Fitted, fitted, kind_of
from gpu_plan.planner.job.machines.missing import in_time_of, keeps, missing
from gpu_plan.planner.job.machines.orders import order_of
from gpu_plan.planner.job.machines.searched import searched
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.job.training import trace_provider
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.options.cluster import joined
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.options.wishes.read import Wishes, read_wishes, settled
from gpu_plan.planner.plan.machines import MachinesDocument
from gpu_plan.planner.search.search import search
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider, Twins

_SOLD_BY_THE_GPU = (1, 8)
_MAKERS = ("nvidia", "amd")
"""Of devices that torch, Accelerate and DeepSpeed run on as planned."""


def find_machines(request: Request, specs: Sequence[str], note: Note) -> MachinesDocument:
    """Every machine of `specs` (all of the catalog where there are none) on which the job fits.

    UsageError for a job that is not planned over machines, and for wishes that nothing can be held against.
    """
    words = dict(request.words)
    if request.model.endswith(".py") or is_inference(words):
        raise UsageError(f"which GPUs? add --gpus, such as: plan {request.model} --gpus 8xH100")
    wishes = read_wishes(words)
    source = resolve(request.model, trust_remote_code=request.trust_remote_code, revision=request.revision)
    openers = Openers(traces=_shared())
    found: list[Fitted] = []
    small: list[str] = []
    job: Prepared | None = None
    kept: dict[tuple[str, int, int], Fitted] = {}
    for cluster in _clusters(specs, wishes, request.settings):
        one = kept.get(kind_of(cluster))
        if one is None or one.best.needed_host_bytes > (cluster.host_ram_bytes or one.best.needed_host_bytes):
            job = prepared(replace(request, gpus=cluster.spec), cluster, source, note, openers)
            one = _simplest(cluster, job, wishes)
        else:
            one = fitted(cluster, one.job, one.best, wishes, searched=one.searched)
        if one is None:
            small.append(cluster.spec)
            continue
        kept[one.kind] = one
        found.append(one)
    if job is None:
        raise UsageError("--machines names no machine")
    return _document(request, source, job, searched(found, wishes), small, wishes)


def _document(
    request: Request,
    source: ModelSource,
    job: Prepared,
    found: Sequence[Fitted],
    small: list[str],
    wishes: Wishes,
) -> MachinesDocument:
    machines = [one.machine for one in sorted(found, key=order_of(wishes))]
    kept = [one for one in machines if keeps(one, wishes)]
    workload = job.task.evaluator.workload
    told = (f"sequence length {workload.seq_len}", str(workload.peft), str(workload.optimizer))
    return MachinesDocument(
        command=request.command,
        model=source.id,
        parameters=job.spec.num_parameters,
        job=told,
        machines=tuple(kept),
        too_small=tuple(small),
        passed_over=tuple(one.spec for one in machines if one not in kept),
        note=None if kept or not machines else missing(machines, wishes, in_time_of(found, wishes)),
    )


def _clusters(specs: Sequence[str], wishes: Wishes, settings: Sequence[str]) -> list[Cluster]:
    """Clusters to try, smallest first; of the catalog every machine with a name, and what is rented by the GPU."""
    if not specs:
        machines = load_platforms().values()
        specs = [machine.name for machine in machines if not machine.per_gpu]
        specs += [f"{count}x{machine.name}" for machine in machines if machine.per_gpu for count in _SOLD_BY_THE_GPU]
        rented = [gpu for gpu in load_gpus().values() if gpu.prices and gpu.vendor in _MAKERS]
        specs += [f"{count}x{gpu.short}" for gpu in rented for count in _SOLD_BY_THE_GPU if count <= node_size(gpu)]
    found = [settled(joined(parse_cluster(spec), settings), wishes) for spec in specs]
    return sorted(found, key=lambda cluster: (cluster.capacity_bytes * cluster.world_size, cluster.spec))


def _simplest(cluster: Cluster, job: Prepared, wishes: Wishes) -> Fitted | None:
    """A machine with the simplest plan that fits, at its best batch; None where nothing fits.

    Of ways that offload the simplest may be the slowest by far: there all are compared, as for one cluster.
    """
    try:
        simplest = at_its_batch(job.task)
        if simplest is None:
            return None
        if not simplest.offloads:
            return fitted(cluster, job, simplest, wishes)
        return fitted(cluster, job, search(job.task, prefer=wishes.prefer).best or simplest, wishes, searched=True)
    except CannotSplitError:
        return None


def _shared() -> Callable[[Request, Cluster, ModelSource, Given, Note], TraceProvider]:
    """One provider for all machines of a kind of device; what is alike on several kinds is traced once."""
    kept: dict[tuple[object, ...], TraceProvider] = {}
    twins = Twins()

    def opened(request: Request, cluster: Cluster, source: ModelSource, given: Given, note: Note) -> TraceProvider:
        fresh = replace(trace_provider(request, cluster, source, given, note), twins=twins)
        adapter = None if fresh.adapter is None else fresh.adapter.key()
        return kept.setdefault((device_kind(cluster.gpu).key, fresh.attention, adapter), fresh)

    return opened
