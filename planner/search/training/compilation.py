"""What Accelerate has torch.compile make of a model, by strategy."""

from typing import Literal, cast

from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.trace.variant import Compilation
from gpu_plan.planner.workload.training import Workload


def compilation_of(workload: Workload, strategy: str) -> Compilation | None:
    """The compiled regions of a job, or None where the step runs as it is written.

    accelerate accelerator.py: prepare_model and _prepare_fsdp2. FSDP's hooks are no part of any graph
    (torch/distributed/fsdp: disable_if_config_true), so under it blocks are compiled one by one even when the whole
    model is asked for. ZeRO-3's hooks stand in every module, which leaves no graph worth the name. The backend `eager`
    runs each operator as it stands.
    """
    backend = workload.setting("compile.backend", "eager")
    regions: Literal["model", "regional", "blocks"] | None = traits_of(strategy).compiled.regions
    if backend == "eager" or regions is None:
        return None
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


def compilation_notes(workload: Workload, strategy: str) -> tuple[str, ...]:
    """What of a strategy's compiled step is only approximate."""
    if workload.setting("compile.backend", "eager") == "eager":
        return ()
    compiled = traits_of(strategy).compiled
    regional = workload.setting("compile.regional", "false") == "true"
    return (compiled.note,) if compiled.note and (compiled.note_holds_regionally or not regional) else ()


def is_approximate(workload: Workload, strategy: str) -> bool:
    """Whether less may be compiled than is counted: the uncompiled step is then the upper end."""
    return traits_of(strategy).compiled.approximate and compilation_of(workload, strategy) is not None


def uncompiled_term(more: int) -> Term:
    """The bytes by which the same step peaks higher as it is written."""
    source = "the uncompiled step's peak above the compiled one's"
    return Term(name="graphs cut shorter", low=0, expected=0, high=max(more, 0), basis="assumed", source=source)
