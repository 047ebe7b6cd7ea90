"""What ZeRO's three stages share: precision, configuration, parameter groups, host memory.

Read in DeepSpeed 0.19.8 (deepspeed/runtime) and accelerate 1.15; each function names its place.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import RankContext, autocast_regime, nbytes, refuses_float8, undecayed
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.training import Peft, Precision, Stack

MASTER = "float32"
"""Masters, their gradients and the optimizer's state (runtime/base_optimizer.py: _configure_master_weights)."""
NORM = "float64"
"""Gradient norms are taken in fp64 (runtime/zero/utils.py: get_norm_dtype)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroConfig:
    """The part of DeepSpeed's `zero_optimization` that moves memory; sizes are in elements."""

    reduce_bucket: int
    overlap: bool
    prefetch: int
    persistence: int
    max_live: int
    max_reuse: int
    sub_group: int
    pin_memory: bool


def zero_config(context: RankContext, stage: int) -> ZeroConfig:
    """DeepSpeed's defaults (runtime/zero/config.py), or the values that follow from the hidden size.

    accelerate's plugin without a config file names no bucket size, so DeepSpeed's own hold (utils/dataclasses.py:
    DeepSpeedPlugin.__post_init__). A Trainer's config says `auto` (transformers integrations/deepspeed.py:
    trainer_config_finalize).
    """
    hidden = context.hidden_size if context.stack.traits.is_trainer else None
    reduce_bucket = 500_000_000 if hidden is None else hidden * hidden
    prefetch = 50_000_000 if hidden is None else int(0.9 * hidden * hidden)
    persistence = 100_000 if hidden is None else 10 * hidden
    return ZeroConfig(
        reduce_bucket=_elements(context, "zero.reduce_bucket_size", reduce_bucket, least=1),
        overlap=_flag(context, "zero.overlap_comm", stage == 3),
        prefetch=_elements(context, "zero.prefetch_bucket_size", prefetch),
        persistence=_elements(context, "zero.param_persistence_threshold", persistence),
        max_live=_elements(context, "zero.max_live_parameters", 1_000_000_000),
        max_reuse=_elements(context, "zero.max_reuse_distance", 1_000_000_000),
        sub_group=_elements(context, "zero.sub_group_size", 1_000_000_000, least=0),
        pin_memory=_flag(context, "zero.pin_memory", True),
    )


def _elements(context: RankContext, key: str, default: int, least: int = 0) -> int:
    text = context.setting(key, str(default))
    try:
        value = int(float(text))
    except (ValueError, OverflowError):
        value = -1
    if value < least:
        raise InputError(f"--set {key}={text}: a number of elements is expected, at least {least}, like 500000000")
    return value


def _flag(context: RankContext, key: str, default: bool) -> bool:
    text = context.setting(key, str(default)).lower()
    if text not in ("true", "false"):
        raise InputError(f"--set {key}={text}: write true or false")
    return text == "true"


def model_dtype(precision: Precision) -> str:
    """dtype of the engine's weights and gradients (runtime/engine.py: get_data_types)."""
    return precision.compute_dtype


def deepspeed_regime(precision: Precision) -> Regime:
    """Weights in the compute dtype, no autocast, buffers as they were.

    runtime/engine.py: _cast_module_mixed_precision casts parameters only (`buffer_dtype` is unset).
    """
    return Regime(weights=model_dtype(precision))


def adapted_regime(precision: Precision, stack: Stack, peft: Peft) -> Regime:
    """ZeRO-3's with adapters: DeepSpeed's linear function, and adapters as peft and the stack made them.

    What deepspeed.zero.Init has partitioned is not cast again (runtime/engine.py: _cast_module_mixed_precision), and
    neither are adapters beside it; a quantised model is loaded without it, and cast. Where all is trained the linear
    functions differ by the copies of inputs that are not contiguous, which is not counted: the trace is shared.
    """
    regime = replace(deepspeed_regime(precision), zero_linear=True)
    if peft.quantises:
        return regime
    trained = autocast_regime(precision, stack, peft).trained
    return replace(regime, trainable_weights=None if trained == regime.weights else trained)


def optimizer_groups(context: RankContext) -> list[list[int]]:
    """Trainable parameters by optimizer group, each group partitioned apart.

    transformers' Trainer splits off what gets no weight decay; a plain AdamW has one group.
    """
    parameters = context.trace.parameters
    trainable = [index for index, parameter in enumerate(parameters) if parameter.trainable and parameter.numel]
    if not context.stack.traits.is_trainer:
        return [trainable] if trainable else []
    decayed = [index for index in trainable if not undecayed(parameters[index])]
    rest = [index for index in trainable if undecayed(parameters[index])]
    return [group for group in (decayed, rest) if group]


def pinned_bytes(size: int, pinned: bool) -> int:
    """Host bytes that a buffer takes: pinned ones are rounded up to a power of two.

    pytorch aten/src/ATen/core/CachingHostAllocator.h: allocate.
    """
    return 1 << (size - 1).bit_length() if pinned and size > 0 else size


def place_frozen(builder: StreamBuilder, dtype: str, sizes: Sequence[int]) -> None:
    """Parameters without gradient: whole or as partitions, outside of the flat buffers; 4-bit ones as packed."""
    for parameter, numel in zip(builder.trace.parameters, sizes, strict=True):
        if not parameter.trainable:
            stored = dtype if is_floating(parameter.dtype) else parameter.dtype
            builder.alloc(builder.at_load(), nbytes(numel, stored), Category.PARAMETERS, "weight", parameter.name)


def refuses(context: RankContext) -> str | None:
    """Reasons common to the stages."""
    if not any(parameter.trainable for parameter in context.trace.parameters):
        return "nothing in the model is trainable"
    if (problem := refuses_float8(context)) is not None:
        return problem
    traits = context.optimizer.traits
    if traits.matrices_only:
        return f"ZeRO flattens parameters, and {traits.matrices_only} takes matrices only"
    if traits.is_paged:
        return f"{context.optimizer} under ZeRO is not in this version"
    if context.offload is not Offload.NONE:
        if not traits.deepspeed_steps_on_host:
            return f"DeepSpeed's optimizer offload steps with its own CPU Adam, not with {context.optimizer}"
        return None
    return "there is only one GPU" if context.world_size == 1 else None


def notes(context: RankContext, config: ZeroConfig) -> tuple[str, ...]:
    """What was taken for granted about the run."""
    said = [
        f"DeepSpeed 0.19.8 semantics; reduce bucket {config.reduce_bucket} elements "
        + ("(auto, from the hidden size)" if context.stack.traits.is_trainer and context.hidden_size else "(default)")
    ]
    if alike := context.precision.traits.with_masters:
        pure = context.precision
        said.append(f"DeepSpeed keeps fp32 masters behind {pure} weights: pure {pure} equals {alike} here")
    if context.offload is not Offload.NONE:
        said.append(f"{context.optimizer} becomes DeepSpeedCPUAdam under optimizer offload")
    return tuple(said)
