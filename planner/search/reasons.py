"""Why a candidate lost, in words and numbers: the same words for every task."""

from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.search.evaluator import BaseEvaluator, J, W
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.units import format_gib

_WORDS = {
    Category.PARAMETERS: "parameters",
    Category.GRADIENTS: "gradients",
    Category.OPTIMIZER_STATE: "optimizer state",
    Category.ACTIVATIONS: "activations",
    Category.TEMPORARY: "temporaries",
    Category.COMMUNICATION: "communication buffers",
    Category.BUFFERS: "buffers",
    Category.INPUTS: "inputs",
    Category.KV_CACHE: "KV cache",
}
_SHOWN = 3


def failure(evaluator: BaseEvaluator[W], judgement: J) -> str | None:
    """Why a candidate cannot run, as far as is known of it; None where it may.

    Of one whose allocator was not simulated its tensors and the node's RAM tell.
    """
    if judgement.failure_reason:
        return f"{judgement.title}: {judgement.failure_reason}"
    if judgement.verdict == "no":
        fits = judgement.least_bytes <= judgement.capacity_bytes
        return fragmented(judgement) if fits else too_large(judgement)
    short = evaluator.host_shortage(judgement)
    if short is not None and evaluator.host_limit is not None:
        return too_much_host(judgement, short, evaluator.host_limit)
    disk = evaluator.disk_shortage(judgement)
    if disk is not None:
        has = format_gib(evaluator.cluster.nvme_bytes or 0)
        return f"{judgement.title} needs {format_gib(disk)} GiB of NVMe on each node, which has {has}"
    return None


def in_short(judgement: Judgement) -> str:
    """`fits: FSDP2, micro batch 2, no checkpointing needs 53.5 GiB, has 79.1`."""
    used, capacity = format_gib(judgement.used_bytes), format_gib(judgement.capacity_bytes)
    return f"{judgement.verdict}: {judgement.full_title} needs {used} GiB, has {capacity}"


def too_large(judgement: Judgement) -> str:
    """`ZeRO-2 needs 97.3 GiB, has 79.1: optimizer state 38.2, activations 31.0, ...`."""
    parts = sorted(judgement.profile.at_peak.items(), key=lambda item: -item[1])[:_SHOWN]
    shares = ", ".join(f"{_WORDS[category]} {format_gib(size)}" for category, size in parts if size)
    needed, capacity = told_apart(judgement.least_bytes, judgement.capacity_bytes)
    if judgement.states_only:
        return f"{judgement.title}: model states alone need {needed} GiB, has {capacity}: {shares}"
    return f"{judgement.title} needs {needed} GiB, has {capacity}{judgement.peak_words}: {shares}"


def told_apart(needed: int, capacity: int) -> tuple[str, str]:
    """Both in GiB, with as many digits as it takes to see which is more: three at most."""
    for digits in (1, 2):
        words = format_gib(needed, digits), format_gib(capacity, digits)
        if words[0] != words[1]:
            return words
    return format_gib(needed, 3), format_gib(capacity, 3)


def fragmented(judgement: Judgement) -> str:
    """A run whose tensors would fit but whose allocator finds no room for them."""
    allocated = format_gib(judgement.profile.peak_allocated_bytes)
    outside = format_gib(sum(term.low for term in judgement.terms))
    return (
        f"{judgement.title} runs out of memory in {format_gib(judgement.capacity_bytes)} GiB by fragmentation: "
        f"{allocated} allocated at the peak and {outside} outside the allocator leave no block large enough"
    )


def too_much_host(judgement: Judgement, short: Term, available: int) -> str:
    """Host memory that the node does not have."""
    moment = {"load": " to load the model", "save": " to save the model"}.get(short.name, "")
    return (
        f"{judgement.title} needs {format_gib(short.low)} GiB of host memory on each node{moment}, which has "
        f"{format_gib(available)}"
    )
