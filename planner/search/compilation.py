"""What Accelerate has torch.compile make of a model, by strategy."""

from typing import Literal, cast

from planner.plan import Assumption
from planner.trace.variant import Compilation
from planner.workload import Workload

_HOOKED = ("fsdp", "fsdp1", "hsdp")


def compilation_of(workload: Workload, strategy: str) -> Compilation | None:
    """The compiled regions of a job, or None where the step runs as it is written.

    accelerate accelerator.py: prepare_model and _prepare_fsdp2. FSDP's hooks are no part of any graph
    (torch/distributed/fsdp: disable_if_config_true), so under it blocks are compiled one by one even when the whole
    model is asked for. The backend `eager` runs each operator as it stands.
    """
    backend = workload.setting("compile.backend", "eager")
    if backend == "eager":
        return None
    regions: Literal["model", "regional", "blocks"] = "blocks" if strategy in _HOOKED else "model"
    if workload.setting("compile.regional", "false") == "true":
        regions = "regional"
    return Compilation(backend=cast("Literal['inductor', 'aot_eager']", backend), regions=regions)


def compilation_note(workload: Workload) -> Assumption:
    """What a compiled step is counted as."""
    backend = workload.setting("compile.backend", "eager")
    if backend == "eager":
        text = "compile.backend=eager runs each operator as it stands: the step is counted as it is written"
    else:
        made = "inductor's" if backend == "inductor" else "AOTAutograd's"
        text = (
            f"compile.backend={backend}: what is saved, fused and reused is {made} own, of the installed torch and for"
            " the planned GPU; each region is taken to be one graph of static shapes"
        )
    return Assumption(text=text, basis="source")
