"""What has to hold where ranks share the tokens of every sample (`--cp`): why a job cannot, one line each. Pure."""

from typing import Literal

from gpu_plan.planner.context.split import Method, SequenceSplit
from gpu_plan.planner.workload.training import Attention, Workload

ROTATION = "cp.rotation"


def split_of(method: Method | Literal[""], degree: int, workload: Workload) -> SequenceSplit | None:
    """How a rank's share is cut, of the rank that holds most; None where samples stay whole."""
    if degree == 1 or not method:
        return None
    rotation = "alltoall" if workload.setting(ROTATION, "allgather") == "alltoall" else "allgather"
    return SequenceSplit(degree=degree, method=method, rotation=rotation)


def why_uncut(length: int, degree: int, method: Method | Literal[""]) -> str | None:
    """Why samples of `length` tokens are not cut for so many ranks, or None."""
    split = SequenceSplit(degree=degree, method=method or "ulysses")
    if length % split.parts == 0:
        return None
    twice = f" two pieces for each of {degree} ranks" if split.method == "ring" else f" {degree} ranks"
    below = length - length % split.parts
    near = f"{below} or {below + split.parts}" if below else str(split.parts)
    return f"--seq-len {length} does not divide over{twice}: use {near}"


def why_whole(workload: Workload, method: Method | Literal[""]) -> str | None:
    """Why a job's samples are not shared out under a strategy, or None.

    accelerate 1.15 accelerator.py: _prepare_cp, and transformers 5.23 trainer.py: _prepare_context_parallel_inputs:
    torch's ring takes sdpa alone, without a mask; deepspeed ulysses_sp.py: register_with_transformers refuses eager.
    """
    if workload.attention is Attention.EAGER:
        return "--attention eager makes every rank's scores by itself: use sdpa" + _or_flash(method)
    if workload.attention is Attention.FLASH and method == "ring":
        return "--attention flash is not sdpa, the only attention that torch's ring takes apart"
    if workload.setting("data.padding", "none") != "none":
        return "--set data.padding beside it: masks are dropped where tokens are shared out, and padding attended to"
    if "eval.batch" in dict(workload.settings):
        return "--set eval.batch beside it is not in this version: evaluations see whole samples"
    if workload.peft.adapts:
        return f"--peft {workload.peft} beside it is not in this version"
    if workload.precision.is_float8:
        return f"--precision {workload.precision} beside it is not in this version"
    if "compile.backend" in dict(workload.settings):
        return "torch.compile beside it is not in this version"
    if workload.fused and workload.loss != "installed":
        return "an older loss beside it is not in this version"
    if not _on_accelerate(workload):
        return f"--stack {workload.stack} shares out no tokens by Accelerate's ParallelismConfig"
    return None


def _or_flash(method: str) -> str:
    return " or flash" if method == "ulysses" else ""


def _on_accelerate(workload: Workload) -> bool:
    """Whether the loop is Accelerate's, or transformers' Trainer on top of it."""
    return workload.stack.traits.loop in ("accelerate", "trainer")

