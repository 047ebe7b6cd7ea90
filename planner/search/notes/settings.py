"""What `--set` changes about the machine rather than about a plan, told beside the figures."""

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.allocator.words import allocator_variable
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.compilation import compilation_note
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.workload.training import Stack, Workload


def setting_notes(workload: Workload, cluster: Cluster) -> tuple[Assumption, ...]:
    """Assumptions that follow from settings of the device's memory and of the allocator."""
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
    if float(workload.setting("alloc.garbage_collection_threshold", "0")) > 0:
        # pytorch c10/cuda/CUDACachingAllocator.cpp: malloc collects only where set_fraction is true.
        text = (
            "alloc.garbage_collection_threshold changes nothing here: torch collects only in jobs that call"
            " torch.cuda.set_per_process_memory_fraction"
        )
        notes.append(Assumption(text=text, basis="source"))
    if workload.setting("fp8.backend", "torchao") == "te":
        text = (
            "fp8.backend=te: the layers of Transformer Engine 2.9 as its source has them, under accelerate's default"
            " recipe; partial sums of its layer norms' and biases' gradients are counted at one size, though the"
            " library chooses among several (some MiB for an instant)"
        )
        notes.append(Assumption(text=text, basis="source"))
    if "eval.batch" in dict(workload.settings):
        cache = "no key-value cache" if workload.stack is Stack.TRAINER else "the key-value cache of its outputs"
        text = f"evaluation: forward without gradients, {cache}; not compiled, even where steps are"
        notes.append(Assumption(text=text, basis="source"))
    if "compile.backend" in dict(workload.settings):
        notes.append(compilation_note(workload))
    return tuple(notes)
