"""Why a candidate lost, in words and numbers."""

from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.search.evaluate import Judgement
from gpu_plan.planner.strategy.traits import Offload
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


def title(judgement: Judgement) -> str:
    """`ZeRO-2 with optimizer offload`."""
    offload = judgement.family.offload
    if offload is Offload.NONE:
        return judgement.family.strategy.title
    words = {Offload.ALL: "full offload", Offload.NVME: "NVMe offload"}.get(offload, f"{offload} offload")
    return f"{judgement.family.strategy.title} with {words}"


def too_large(judgement: Judgement) -> str:
    """`ZeRO-2 needs 97.3 GiB of 79.1: optimizer state 38.2, activations 31.0, ...`."""
    parts = sorted(judgement.profile.at_peak.items(), key=lambda item: -item[1])[:_SHOWN]
    shares = ", ".join(f"{_WORDS[category]} {format_gib(size)}" for category, size in parts if size)
    needed = format_gib(judgement.low_bytes)
    capacity = format_gib(judgement.capacity_bytes)
    if judgement.states_only:
        return f"{title(judgement)} needs at least {needed} GiB of {capacity} before any activation: {shares}"
    return f"{title(judgement)} needs {needed} GiB of {capacity}: {shares}"


def fragmented(judgement: Judgement) -> str:
    """A run whose tensors would fit but whose allocator finds no room for them."""
    allocated = format_gib(judgement.profile.peak_allocated_bytes)
    outside = format_gib(sum(term.low for term in judgement.terms))
    return (
        f"{title(judgement)} dies of fragmentation in {format_gib(judgement.capacity_bytes)} GiB: "
        f"{allocated} allocated at the peak and {outside} outside the allocator leave no block large enough"
    )


def too_much_host(judgement: Judgement, short: Term, available: int) -> str:
    """Host memory that the node does not have."""
    moment = {"load": " to load the model", "save": " to save the model"}.get(short.name, "")
    return (
        f"{title(judgement)} needs {format_gib(short.low)} GiB of host memory on each node{moment}, which has "
        f"{format_gib(available)}"
    )
