"""What has to hold where ranks share the tokens of every sample (`--cp`): why a job cannot, one line each. Pure."""

from collections.abc import Mapping
from typing import Any, Literal

from gpu_plan.planner.context.split import Method, Rotation, SequenceSplit
from gpu_plan.planner.workload.training import Attention, Workload

ROTATION = "cp.rotation"
LONG = 32_768
"""Tokens of a sample from which on sharing it out is searched: below, attention and activations of one sample are small
beside the states, which other strategies share out already."""
_STATES = ("mamba", "ssm", "conv_kernel", "linear_attention", "time_mix", "rwkv", "lru_width", "xlstm")


def split_of(method: Method | Literal[""], degree: int, workload: Workload) -> SequenceSplit | None:
    """How a rank's share is cut, of the rank that holds most; None where samples stay whole."""
    if degree == 1 or not method:
        return None
    rotation: Rotation = "alltoall" if workload.setting(ROTATION, "allgather") == "alltoall" else "allgather"
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


def splits_tokens(class_name: str, config: Mapping[str, Any]) -> bool:
    """Whether a model is surely one whose tokens the engines share out, by its class and configuration alone."""
    if not class_name.endswith("ForCausalLM") or not isinstance(config.get("num_attention_heads"), int):
        return False
    windows = config.get("sliding_window") is not None and config.get("use_sliding_window", True)
    kinds = config.get("layer_types")
    full = set(kinds) <= {"full_attention"} if isinstance(kinds, list) else not windows
    return full and not any(word in key for key in config for word in _STATES)


def divides_heads(method: str, degree: int, config: Mapping[str, Any]) -> bool:
    """Whether Ulysses gives each of `degree` ranks whole heads (ulysses_sp.py: UlyssesSPAttentionHF.__init__)."""
    heads = config.get("num_attention_heads")
    shared = config.get("num_key_value_heads") or heads
    if method != "ulysses" or not isinstance(heads, int) or not isinstance(shared, int):
        return method == "ring"
    return heads % degree == 0 and (shared % degree == 0 or degree % shared == 0)


def _or_flash(method: str) -> str:
    return " or flash" if method == "ulysses" else ""


def _on_accelerate(workload: Workload) -> bool:
    """Whether the loop is Accelerate's, or transformers' Trainer on top of it."""
    return workload.stack.traits.loop in ("accelerate", "trainer")
