"""On which machines a job fits, and what it costs there: the question before --gpus is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.cluster import Cluster, node_size, parse_cluster
from gpu_plan.planner.hardware.machines import load_platforms
from gpu_plan.planner.job.alternatives import at_its_batch
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.job.training import trace_provider
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.options.training import Given
from gpu_plan.planner.options.wishes.read import Wishes, read_wishes, settled
from gpu_plan.planner.plan.figures import JobFigures
from gpu_plan.planner.plan.machines import Machine, MachinesDocument
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider, Twins
from gpu_plan.planner.workload.prefer import Prefer

_MILLION = 10**6
_SOLD_BY_THE_GPU = (1, 8)
_MAKERS = ("nvidia", "amd")
"""Of devices that torch, Accelerate and DeepSpeed run on as planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    """A machine with its simplest plan."""

    machine: Machine
    size: int
    """Bytes of all its devices."""


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
    fitted: list[_Fitted] = []
    small: list[str] = []
    job: Prepared | None = None
    kept: dict[tuple[str, int, int], Judgement] = {}
    for cluster in _clusters(specs, wishes):
        key = (cluster.gpu.id, cluster.nodes, cluster.gpus_per_node)
        best = kept.get(key)
        if best is None or best.needed_host_bytes > (cluster.host_ram_bytes or best.needed_host_bytes):
            job = prepared(replace(request, gpus=cluster.spec), cluster, source, note, openers)
            best = _best(job)
        if best is None or job is None:
            small.append(cluster.spec)
            continue
        kept[key] = best
        fitted.append(
            _Fitted(machine=_machine(cluster, job, best, wishes), size=cluster.capacity_bytes * cluster.world_size)
        )
    if job is None:
        raise UsageError("--machines names no machine")
    return _document(request, source, job, fitted, small, wishes)


def _document(
    request: Request,
    source: ModelSource,
    job: Prepared,
    fitted: list[_Fitted],
    small: list[str],
    wishes: Wishes,
) -> MachinesDocument:
    by_cost = wishes.prefer in (Prefer.COST, Prefer.SPEED) or wishes.budget is not None
    fitted.sort(key=_cost if by_cost and wishes.prefer is not Prefer.SPEED else _speed if by_cost else _size)
    machines = [one.machine for one in fitted]
    kept = [one for one in machines if _keeps(one, wishes)]
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
        note=None if kept or not machines else _missing(machines, wishes),
    )


def _size(one: _Fitted) -> tuple[float, float, str]:
    return (one.size, one.machine.usd_per_hour or float("inf"), one.machine.spec)


def _cost(one: _Fitted) -> tuple[float, float, str]:
    cost = one.machine.usd_per_million_tokens
    return (float("inf") if cost is None else cost, one.size, one.machine.spec)


def _speed(one: _Fitted) -> tuple[float, float, str]:
    return (-one.machine.samples_per_second, one.size, one.machine.spec)


def _keeps(machine: Machine, wishes: Wishes) -> bool:
    """Whether it keeps to the budget and the deadline; without a price nothing is known of a budget."""
    if machine.job is None:
        return True
    if wishes.budget is not None and (machine.job.usd is None or machine.job.usd > wishes.budget):
        return False
    return wishes.deadline_seconds is None or machine.job.hours * 3600 <= wishes.deadline_seconds


def _missing(machines: Sequence[Machine], wishes: Wishes) -> str:
    """What it would take: the cheapest, and the fastest."""
    jobs = [(one.spec, one.job) for one in machines if one.job is not None]
    priced = [(spec, job.usd, job.hours) for spec, job in jobs if job.usd is not None]
    cheapest = min(priced, key=lambda one: one[1], default=None)
    fastest_spec, fastest = min(jobs, key=lambda one: one[1].hours)
    within = [one for one in priced if wishes.deadline_seconds is None or one[2] * 3600 <= wishes.deadline_seconds]
    quick = min(within, key=lambda one: one[1], default=None)
    pieces = [
        "no machine stays within the budget and the deadline: the fastest,"
        f" {fastest_spec}, takes {fastest.hours:,.1f} hours"
    ]
    if cheapest is not None:
        pieces.append(f"the cheapest, {cheapest[0]}, costs ${cheapest[1]:,.0f} and takes {cheapest[2]:,.1f} hours")
    if quick is not None and wishes.deadline_seconds is not None:
        pieces.append(f"the cheapest that is in time, {quick[0]}, costs ${quick[1]:,.0f}")
    return "; ".join(pieces)


def _clusters(specs: Sequence[str], wishes: Wishes) -> list[Cluster]:
    """Clusters to try, smallest first; of the catalog every machine with a name, and what is rented by the GPU."""
    if not specs:
        machines = load_platforms().values()
        specs = [machine.name for machine in machines if not machine.per_gpu]
        specs += [f"{count}x{machine.name}" for machine in machines if machine.per_gpu for count in _SOLD_BY_THE_GPU]
        rented = [gpu for gpu in load_gpus().values() if gpu.prices and gpu.vendor in _MAKERS]
        specs += [f"{count}x{gpu.short}" for gpu in rented for count in _SOLD_BY_THE_GPU if count <= node_size(gpu)]
    found = [settled(parse_cluster(spec), wishes) for spec in specs]
    return sorted(found, key=lambda cluster: (cluster.capacity_bytes * cluster.world_size, cluster.spec))


def _best(job: Prepared) -> Judgement | None:
    """The simplest way that fits, at its best batch; None where nothing fits."""
    try:
        found: Judgement | None = at_its_batch(job.task)
    except CannotSplitError:
        return None
    return found


def _machine(cluster: Cluster, job: Prepared, best: Judgement, wishes: Wishes) -> Machine:
    speed = job.task.speed(best)
    each = speed.tokens_per_second_per_gpu
    tokens = None if each is None else each * cluster.world_size
    rate = tokens or best.samples_per_second
    # What another provider asks for such a GPU is no price of a machine that is known by name.
    prices = [cluster.price] if cluster.price else [] if cluster.platform else list(cluster.gpu.prices)
    price = min(prices, key=lambda one: one.usd_per_hour, default=None)
    hourly = None if price is None else price.usd_per_hour * cluster.world_size
    return Machine(
        spec=cluster.spec,
        gpus=cluster.world_size,
        capacity_bytes=cluster.capacity_bytes,
        host_ram_bytes=cluster.host_ram_bytes,
        plan=job.task.words(best),
        device_used_bytes=best.expected_bytes,
        host_bytes_per_node=best.kept_host_bytes,
        samples_per_second=best.samples_per_second,
        tokens_per_second=tokens,
        usd_per_hour=hourly,
        price_provider=None if price is None else price.provider,
        price_date=None if price is None else price.date,
        price_source=None if price is None else price.source,
        usd_per_million_tokens=None if hourly is None else hourly / 3600 * _MILLION / rate,
        job=None if wishes.tokens is None or tokens is None else _job_figures(wishes.tokens, tokens, cluster, hourly),
    )


def _job_figures(tokens: int, rate: float, cluster: Cluster, hourly: float | None) -> JobFigures:
    """A job of so many tokens at `rate` of them a second."""
    hours = tokens / rate / 3600
    return JobFigures(
        tokens=tokens,
        hours=hours,
        gpu_hours=hours * cluster.world_size,
        usd=None if hourly is None else hours * hourly,
    )


def _shared() -> Callable[[Request, Cluster, ModelSource, Given, Note], TraceProvider]:
    """One provider for all machines of a kind of device; what is alike on several kinds is traced once."""
    kept: dict[tuple[object, ...], TraceProvider] = {}
    twins = Twins()

    def opened(request: Request, cluster: Cluster, source: ModelSource, given: Given, note: Note) -> TraceProvider:
        fresh = replace(trace_provider(request, cluster, source, given, note), twins=twins)
        adapter = None if fresh.adapter is None else fresh.adapter.key()
        return kept.setdefault((device_kind(cluster.gpu).key, fresh.attention, adapter), fresh)

    return opened
