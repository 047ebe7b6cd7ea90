"""Whose loop trains adapters on one GPU where nobody named one, and a loop of one's own needs the node's RAM.

Nobody sets up DeepSpeed to keep an adapter's states, some MiB, in the RAM of a node with one card. What a loop around
Accelerate lacks room for is the frozen base in fp32 (peft's prepare_model_for_kbit_training) or whole logits; trainers
that most people run adapters with hold neither, so the question is asked of those.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Prepared
from gpu_plan.planner.options.request import Request
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.search import Found
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.workload.stacks.registry import StackTraits, stack_names, traits_of
from gpu_plan.planner.workload.training import Workload

_LANGUAGE_MODEL = "ForCausalLM"
"""How transformers' classes of them end."""
_OPEN = ("stack", "strategy", "offload")
"""Options that leave no such question open where they are given."""
_MOST = 2
"""How many times the device the least of a loop of one's own may be at most, for another one to be asked about: what
is fp32 in the one and of 16 bits in the other is half as large at best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByTrainer:
    """The same job under a trainer, and what was found for it."""

    request: Request
    job: Prepared
    found: Found[Any]


def by_trainer(
    request: Request,
    cluster: Cluster,
    job: Prepared,
    found: Found[Any],
    *,
    prepare: Callable[[Request], Prepared],
    search: Callable[[Prepared], Found[Any]],
) -> ByTrainer | None:
    """The job under the first trainer that runs it on the GPU alone; None where the question is not open, where a loop
    of one's own does without the node's RAM as well, where no trainer does, or where none can be traced here."""
    least = _least_alone(found)
    if not _is_open(request, cluster, job) or least is None:
        return None
    workload = job.task.evaluator.workload
    assert isinstance(workload, Workload)
    for traits in _trainers(workload):
        asked = replace(request, words=(*request.words, ("stack", traits.name)))
        try:
            other = _searched_basis(prepare(asked))
            again = search(other)
        except NotTraceableError:  # what is shipped traced is a loop of one's own, and nothing here traces another
            return None
        if again.best is not None and not again.best.offloads:
            return ByTrainer(request=asked, job=replace(other, headline=_told(traits, least, workload)), found=again)
    return None


def _is_open(request: Request, cluster: Cluster, job: Prepared) -> bool:
    words = dict(request.words)
    if request.pinned or request.script is not None or words.keys() & {*_OPEN, "recipe"}:
        return False
    if request.model.endswith(".py") or cluster.world_size > 1 or cluster.gpu.is_cpu or job.headline is not None:
        return False
    task = job.task
    adapts = isinstance(task, TrainingTask) and task.evaluator.workload.peft.adapts
    return adapts and job.spec.class_name.endswith(_LANGUAGE_MODEL)


def _least_alone(found: Found[Any]) -> StepJudgement | None:
    """What a loop of one's own takes at least without the node's RAM, where that does not surely fit and is within
    reach; None otherwise."""
    if found.best is not None and not found.best.offloads:
        return None
    tight = [plan for plan in found.plans if isinstance(plan, StepJudgement)]
    lost = [one.judgement for one in found.rejected if isinstance(one.judgement, StepJudgement)]
    alone = [one for one in (*tight, *lost) if not one.offloads]
    if any(one.verdict == "fits" for one in alone):  # behind a faster one, or by another --prefer
        return None
    least = min(alone, key=lambda one: one.expected_bytes, default=None)
    return None if least is None or least.low_bytes > _MOST * least.capacity_bytes else least


def _trainers(workload: Workload) -> list[StackTraits]:
    """Those that are asked, one after the other; not one whose adapters cannot be trained in the job's precision."""
    known = sorted((traits_of(name) for name in stack_names()), key=lambda traits: traits.turn)
    return [traits for traits in known if traits.turn and not traits.fails_scaling(workload.precision, workload.peft)]


def _searched_basis(job: Prepared) -> Prepared:
    """The job whose stack was chosen here, as its document says it."""
    task = job.task
    assert isinstance(task, TrainingTask)
    workload = task.evaluator.workload
    basis = tuple((name, "searched" if name == "stack" else why) for name, why in workload.basis)
    return replace(job, task=task.other(replace(workload, basis=basis)))


def _told(traits: StackTraits, least: StepJudgement, workload: Workload) -> str:
    held = " after peft's prepare_model_for_kbit_training" if workload.peft.quantises else ""
    return (
        f"planned for {traits.title} (--stack {traits.name}), since no stack was named: it needs the GPU alone, where"
        f" a loop around Accelerate{held} takes {format_gib(least.expected_bytes)} of"
        f" {format_gib(least.capacity_bytes)} GiB (--stack accelerate plans that)"
    )
