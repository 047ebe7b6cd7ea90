"""One machine with its best plan so far: what it costs there, and what it costs at the least."""

from dataclasses import dataclass, replace

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Prepared
from gpu_plan.planner.options.wishes.read import Wishes
from gpu_plan.planner.plan.figures import JobFigures
from gpu_plan.planner.plan.machines import Machine
from gpu_plan.planner.search.judgement import Judgement

_MILLION = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A machine with a plan that fits it."""

    machine: Machine
    size: int
    """Bytes of all its devices."""
    cluster: Cluster
    job: Prepared
    best: Judgement
    searched: bool = False
    """Whether all plans were compared; otherwise it is the simplest that fits, at its best batch."""

    @property
    def kind(self) -> tuple[str, int, int]:
        """What decides its plans but for the node's memory."""
        return kind_of(self.cluster)


def kind_of(cluster: Cluster) -> tuple[str, int, int]:
    """Machines of one kind run the same plans, as far as their nodes' memory allows."""
    return (cluster.gpu.id, cluster.nodes, cluster.gpus_per_node)


def fitted(cluster: Cluster, job: Prepared, best: Judgement, wishes: Wishes, *, searched: bool = False) -> Fitted:
    """A machine with `best`, priced."""
    size = cluster.capacity_bytes * cluster.world_size
    machine = replace(machine_of(cluster, job, best, wishes), all_plans=searched)
    return Fitted(machine=machine, size=size, cluster=cluster, job=job, best=best, searched=searched)


def machine_of(cluster: Cluster, job: Prepared, best: Judgement, wishes: Wishes) -> Machine:
    """What is told of a machine: its plan, its rate and its cost."""
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
