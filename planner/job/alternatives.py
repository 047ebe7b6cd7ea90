"""What else could be done: less asked of the job, adapters, more GPUs, a larger card; each one evaluated."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.job.prepared import Openers
from gpu_plan.planner.job.ready import prepared
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.plan.document import Alternative
from gpu_plan.planner.search.nearest_change import grown
from gpu_plan.planner.search.task import AnyTask
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft, adapters_on
from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER

_SHORTER = "--seq-len"
_EIGHT_BIT = "-8bit"
"""Behind an optimizer's name: the same with states of eight bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it was asked for, and the task that it came to."""

    request: Request
    cluster: Cluster
    source: ModelSource
    note: Note
    openers: Openers
    task: AnyTask


@dataclass(slots=True, kw_only=True)
class Tried:
    """What was tried: what fits, and what came nearest of the rest."""

    found: list[Alternative]
    refused: list[str]
    """Changes that do not help, in words."""


def alternatives(job: Job, *, fits: bool, most: int = 5) -> Tried:
    """Changes that fit, the smallest first; of a job that fits already, what it could be instead.

    At most `most`, of which one has more GPUs and one a larger card.
    """
    tried = Tried(found=[], refused=[])
    for change, task in _changes(job, fits):
        if len(tried.found) >= most - 2:
            break
        _try(job, tried, change, task)
    for clusters in (_more(job.cluster), _larger(job)):
        before = len(tried.found)
        for change, cluster in clusters:
            _try(job, tried, change, lambda cluster=cluster: job.task.on(cluster), cluster)
            if len(tried.found) > before:
                break
    return tried


def _try(job: Job, tried: Tried, change: str, make: Any, cluster: Cluster | None = None) -> None:
    """Evaluates one change; one that makes no sense for this job is passed over."""
    try:
        task: AnyTask = make()
        best = at_its_batch(task)
    except (PlanError, CannotSplitError):
        return
    if best is None:
        tried.refused.append(change)
        return
    tried.found.append(_alternative(change, task, best, cluster or job.cluster))


def at_its_batch(task: AnyTask) -> Any:
    """The simplest way that fits, of a training job at the micro batch that serves it best: the smallest alone would
    leave out what room is good for. None where nothing fits."""
    fitting = task.fitting()
    if not isinstance(fitting, StepJudgement):
        return fitting
    best = task.explore(fitting.family, exhaustive=False).best
    return best if best is not None and best.verdict == "fits" else fitting


def _alternative(change: str, task: AnyTask, best: Any, cluster: Cluster) -> Alternative:
    speed = task.speed(best)
    prices = [cluster.price] if cluster.price else list(cluster.gpu.prices)
    cheapest = min((price.usd_per_hour for price in prices), default=None)
    return Alternative(
        change=change,
        plan=task.words(best),
        cluster=cluster.spec,
        device_used_bytes=best.expected_bytes,
        capacity_bytes=best.capacity_bytes,
        host_bytes_per_node=best.kept_host_bytes,
        samples_per_second=best.samples_per_second,
        tokens_per_second=None
        if speed.tokens_per_second_per_gpu is None
        else speed.tokens_per_second_per_gpu * cluster.world_size,
        usd_per_hour=None if cheapest is None else cheapest * cluster.world_size,
    )


def _changes(job: Job, fits: bool) -> Iterator[tuple[str, Any]]:
    """Changes on the same devices, the smallest first: a shorter sequence after what leaves the data alone."""
    smaller = [] if fits else list(job.task.smaller())
    for words, task in smaller:
        if not words.startswith(_SHORTER):
            yield words, lambda task=task: task
    for words, added in _other_words(job.request):
        yield words, lambda added=added: _asked(job, added)
    for words, task in smaller:
        if words.startswith(_SHORTER):
            yield words, lambda task=task: task


def _other_words(request: Request) -> Iterator[tuple[str, dict[str, str]]]:
    """Options that change how the same model is run; of a script, which runs as it is written, none."""
    given = dict(request.words)
    if request.model.endswith(".py"):
        return
    if "server" in given:
        if given.get("quantize", "none") == "none":
            yield "--quantize fp8", {"quantize": "fp8"}
        return
    if is_inference(given):
        if given.get("quantize", "none") == "none":
            yield "--quantize int8", {"quantize": "int8"}
            yield "--quantize nf4", {"quantize": "nf4"}
        return
    peft = Peft(given.get("peft", NO_ADAPTERS))
    if given.get("fused-loss") != "true":
        yield "--fused-loss", {"fused-loss": "true"}
    if given.get("attention") == "eager":
        yield "--attention sdpa", {"attention": "sdpa"}
    if not peft.adapts and given.get("optimizer", DEFAULT_OPTIMIZER) == DEFAULT_OPTIMIZER:
        lean = f"{DEFAULT_OPTIMIZER}{_EIGHT_BIT}"
        yield f"--optimizer {lean}", {"optimizer": lean}
    for quantised in (False, True):
        if not peft.quantises and (quantised or not peft.adapts):
            other = str(adapters_on(quantised=quantised))
            yield f"--peft {other}", {"peft": other}


def _asked(job: Job, added: dict[str, str]) -> AnyTask:
    """The task of the request with other words; what it leaves open is searched."""
    words = tuple({**dict(job.request.words), **added}.items())
    request = replace(job.request, words=words, pinned=False)
    task = prepared(request, job.cluster, job.source, job.note, job.openers).task
    return task


def _more(cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    for larger in grown(cluster):
        yield larger.spec, larger


def _larger(job: Job) -> Iterator[tuple[str, Cluster]]:
    """As many of the next larger cards of the same maker, smallest first."""
    cluster = job.cluster
    for gpu in larger_cards(cluster.gpu):
        other = replace(
            cluster,
            gpu=gpu,
            platform=None,
            price=None,
            host_ram_bytes=None if cluster.platform else cluster.host_ram_bytes,
        )
        yield other.spec, other


def larger_cards(gpu: Gpu) -> list[Gpu]:
    """Cards of one maker with more memory that somebody rents out, the smallest of each size first."""
    if gpu.is_cpu or gpu.usable_bytes is None:
        return []
    sizes: dict[int, Gpu] = {}
    for other in load_gpus().values():
        size = other.marketed_bytes
        if (
            other.vendor != gpu.vendor
            or size is None
            or other.usable_bytes is None
            or size <= (gpu.marketed_bytes or 0)
        ):
            continue
        if other.prices:
            sizes.setdefault(size, other)
    return [sizes[size] for size in sorted(sizes)]


def nearest(tried: Tried) -> str | None:
    """The first of them as one sentence; where nothing helps, what was tried."""
    if tried.found:
        first = tried.found[0]
        return f"{first.change} would fit: {first.plan}"
    if not tried.refused:
        return None
    return f"nothing that was tried would fit: {', '.join(tried.refused[:4])}" + (
        f" and {len(tried.refused) - 4} more" if len(tried.refused) > 4 else ""
    )
