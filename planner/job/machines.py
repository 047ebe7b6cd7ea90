"""On which machines a job fits, and what it costs there: the question before --gpus is known."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpu_plan.planner.errors import InputError, UsageError
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
from gpu_plan.planner.search.search import search
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import TraceProvider, Twins
from gpu_plan.planner.units import format_count, format_dollars, format_hours
from gpu_plan.planner.workload.prefer import Prefer

_MILLION = 10**6
_SOLD_BY_THE_GPU = (1, 8)
_DOUBLINGS = 6
"""Of the fastest machine, looking for one that is in time."""
_MAKERS = ("nvidia", "amd")
"""Of devices that torch, Accelerate and DeepSpeed run on as planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    """A machine with its simplest plan."""

    machine: Machine
    size: int
    """Bytes of all its devices."""
    cluster: Cluster
    moving_parts: int


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
            best = _best(job, wishes)
        if best is None or job is None:
            small.append(cluster.spec)
            continue
        kept[key] = best
        fitted.append(_fitted(cluster, job, best, wishes))
    if job is None:
        raise UsageError("--machines names no machine")
    return _document(request, source, job, fitted, small, wishes)


def _fitted(cluster: Cluster, job: Prepared, best: Judgement, wishes: Wishes) -> _Fitted:
    size = cluster.capacity_bytes * cluster.world_size
    machine = _machine(cluster, job, best, wishes)
    return _Fitted(machine=machine, size=size, cluster=cluster, moving_parts=best.moving_parts)


def _document(
    request: Request,
    source: ModelSource,
    job: Prepared,
    fitted: list[_Fitted],
    small: list[str],
    wishes: Wishes,
) -> MachinesDocument:
    cheapest_first = wishes.budget is not None and wishes.prefer is Prefer.BALANCE
    fitted.sort(key=_cost if cheapest_first else _ORDERS[wishes.prefer])
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
        note=None if kept or not machines else _missing(machines, wishes, _in_time(fitted, job, wishes)),
    )


def _size(one: _Fitted) -> tuple[float, float, str]:
    return (one.size, one.machine.usd_per_hour or float("inf"), one.machine.spec)


def _cost(one: _Fitted) -> tuple[float, float, str]:
    cost = one.machine.usd_per_million_tokens
    return (float("inf") if cost is None else cost, one.size, one.machine.spec)


def _speed(one: _Fitted) -> tuple[float, float, str]:
    return (-one.machine.samples_per_second, one.size, one.machine.spec)


def _parts(one: _Fitted) -> tuple[float, float, str]:
    return (one.moving_parts, one.size, one.machine.spec)


def _room(one: _Fitted) -> tuple[float, float, str]:
    """By tenths of the device that stay free: less is noise."""
    used = one.machine.device_used_bytes / one.machine.capacity_bytes
    return (math.ceil(10 * used), one.size, one.machine.spec)


_ORDERS: dict[Prefer, Callable[[_Fitted], tuple[float, float, str]]] = {
    Prefer.BALANCE: _size,
    Prefer.SPEED: _speed,
    Prefer.MEMORY: _room,
    Prefer.COST: _cost,
    Prefer.SIMPLE: _parts,
}
"""What comes first: the smallest unless something else is preferred, which the smallest of its equals wins."""


def _keeps(machine: Machine, wishes: Wishes) -> bool:
    """Whether it keeps to the budget and the deadline; without a price nothing is known of a budget."""
    if machine.job is None:
        return True
    if wishes.budget is not None and (machine.job.usd is None or machine.job.usd > wishes.budget):
        return False
    return wishes.deadline_seconds is None or machine.job.hours * 3600 <= wishes.deadline_seconds


def _in_time(fitted: Sequence[_Fitted], job: Prepared, wishes: Wishes) -> Machine | None:
    """The fastest machine so many times over that the job ends in time: twice as many nodes until it does."""
    if wishes.deadline_seconds is None or wishes.tokens is None or not fitted:
        return None
    cluster = min(fitted, key=lambda one: _speed(one)).cluster
    for _ in range(_DOUBLINGS):
        try:
            cluster = replace(cluster, nodes=2 * cluster.nodes)
            best = at_its_batch(job.task.on(cluster))
        except (InputError, CannotSplitError):
            return None
        if best is None:
            return None
        machine = _machine(cluster, replace(job, task=job.task.on(cluster)), best, wishes)
        if machine.job is not None and machine.job.hours * 3600 <= wishes.deadline_seconds:
            return machine
    return None


def _missing(machines: Sequence[Machine], wishes: Wishes, in_time: Machine | None) -> str:
    """What it would take: the cheapest, the fastest, and more of the fastest."""
    jobs = [(one.spec, one.job) for one in machines if one.job is not None]
    priced = [(spec, job.usd, job.hours) for spec, job in jobs if job.usd is not None]
    cheapest = min(priced, key=lambda one: one[1], default=None)
    fastest_spec, fastest = min(jobs, key=lambda one: one[1].hours)
    within = [one for one in priced if wishes.deadline_seconds is None or one[2] * 3600 <= wishes.deadline_seconds]
    quick = min(within, key=lambda one: one[1], default=None)
    asked = [] if wishes.budget is None else [f"the budget of {format_dollars(wishes.budget)}"]
    if wishes.deadline_seconds is not None:
        asked.append(f"the deadline of {format_hours(wishes.deadline_seconds / 3600)}")
    pieces = [f"no machine keeps to {' and '.join(asked)}"]
    if cheapest is not None:
        costs = f"costs {format_dollars(cheapest[1])} and takes {format_hours(cheapest[2])}"
        pieces.append(f"the cheapest, {cheapest[0]}, {costs}")
    elif wishes.budget is not None:
        pieces.append("nobody printed a price for any of them (--price gives one)")
    if wishes.deadline_seconds is not None:
        if quick is not None:
            pieces.append(f"the cheapest that is in time, {quick[0]}, costs {format_dollars(quick[1])}")
        else:
            pieces.append(f"the fastest, {fastest_spec}, takes {format_hours(fastest.hours)}")
        if in_time is not None and in_time.job is not None and fastest.hours * 3600 > wishes.deadline_seconds:
            cost = "" if in_time.job.usd is None else f" and {format_dollars(in_time.job.usd)}"
            pieces.append(f"{in_time.spec} would take {format_hours(in_time.job.hours)}{cost}")
    if wishes.budget is not None and cheapest is not None and cheapest[1] > wishes.budget and wishes.tokens:
        paid = format_count(round(wishes.tokens * wishes.budget / cheapest[1]))
        pieces.append(f"the budget pays for {paid} of {format_count(wishes.tokens)} tokens there")
    return f"{pieces[0]}: {'; '.join(pieces[1:])}"


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


def _best(job: Prepared, wishes: Wishes) -> Judgement | None:
    """The simplest way that fits, at its best batch; None where nothing fits.

    Of ways that offload the simplest may be the slowest by far: there all are compared, as for one cluster.
    """
    try:
        found: Judgement | None = at_its_batch(job.task)
        if found is None or not found.offloads:
            return found
        return search(job.task, prefer=wishes.prefer).best or found
    except CannotSplitError:
        return None


def _machine(cluster: Cluster, job: Prepared, best: Judgement, wishes: Wishes) -> Machine:
    speed = job.task.speed(best)
    each = speed.tokens_per_second_per_gpu
    tokens = None if each is None else each * cluster.world_size
    rate = tokens or best.samples_per_second
    price = cluster.prices[0] if cluster.prices else None
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
