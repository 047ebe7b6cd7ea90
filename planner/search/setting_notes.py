"""What `--set` changes about the machine rather than about a plan, told beside the figures of every task."""

from collections.abc import Iterator, Mapping

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.allocator.words import allocator_variable
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.evaluator import Job
from gpu_plan.planner.units import format_gib

_KERNELS = {"flash": "FlashAttention-2", "cudnn": "cuDNN's", "flash1": "FlashAttention-1", "flash3": "FlashAttention-3"}


def setting_notes(workload: Job, cluster: Cluster) -> tuple[Assumption, ...]:
    """Assumptions that follow from settings of the device's memory, its allocator and its speed."""
    notes = []
    reserve = workload.reserve_bytes
    if reserve:
        kept, of = format_gib(reserve, 2), format_gib(cluster.capacity_bytes, 2)
        notes.append(
            Assumption(
                text=f"memory.reserve: {kept} of each device's {of} GiB are kept free for others", basis="assumed"
            )
        )
    variable = allocator_variable(dict(workload.settings))
    if variable:
        notes.append(Assumption(text=f"the job runs with PYTORCH_ALLOC_CONF={variable}", basis="assumed"))
    if float(dict(workload.settings).get("alloc.garbage_collection_threshold", "0")) > 0:
        # pytorch c10/cuda/CUDACachingAllocator.cpp: malloc collects only where set_fraction is true.
        text = (
            "alloc.garbage_collection_threshold changes nothing here: torch collects only in jobs that call"
            " torch.cuda.set_per_process_memory_fraction"
        )
        notes.append(Assumption(text=text, basis="source"))
    return (*notes, *_speed_notes(dict(workload.settings), cluster))


def _speed_notes(settings: Mapping[str, str], cluster: Cluster) -> Iterator[Assumption]:
    """What is assumed of the speed alone: a small model's step, which waits for its launches, may show none of it."""
    watts = settings.get("gpu.power_limit")
    if watts is not None:
        own = cluster.gpu.tdp_watts or 0.0
        text = f"gpu.power_limit: products are timed at {watts} of the {own:g} W of each {cluster.gpu.short}"
        yield Assumption(text=text, basis="assumed")
    network = settings.get("gpu.network")
    if network is not None:
        text = f"gpu.network: what nodes send each other is timed as over {network}, by published tables"
        yield Assumption(text=text if cluster.nodes > 1 else f"{text}; here is one node", basis="assumed")
    kernel = settings.get("attention.kernel")
    if kernel is not None:
        yield Assumption(text=f"attention.kernel: fused attention is timed as {_KERNELS[kernel]}", basis="assumed")
