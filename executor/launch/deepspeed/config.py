"""A target as DeepSpeed's configuration file. Pure."""

from collections.abc import Mapping

from gpu_plan.executor.launch.target import Target
from gpu_plan.planner.workload.training import NVME_PATH

_AUTO = "auto"
_SIZES: Mapping[str, tuple[str, int, bool]] = {
    "zero.reduce_bucket_size": ("reduce_bucket_size", 500_000_000, False),
    "zero.prefetch_bucket_size": ("stage3_prefetch_bucket_size", 50_000_000, True),
    "zero.param_persistence_threshold": ("stage3_param_persistence_threshold", 100_000, True),
    "zero.max_live_parameters": ("stage3_max_live_parameters", 1_000_000_000, True),
    "zero.max_reuse_distance": ("stage3_max_reuse_distance", 1_000_000_000, True),
    "zero.sub_group_size": ("sub_group_size", 1_000_000_000, True),
}
"""DeepSpeed's key by `--set` key, with its own default in elements (runtime/zero/config.py), and whether stage 3
alone reads it. Written out, so that a plan means the same under another version."""
_FROM_HIDDEN = frozenset({"reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"})
"""Sizes that the Trainer sets from the hidden size where the file says auto."""


_LIKE_TORCH: Mapping[str, object] = {"loss_scale_window": 2000, "hysteresis": 1}
"""Under which DeepSpeed's loss scale moves as that of torch.amp.GradScaler, with which other strategies train: it
halves at the first overflow, and doubles after 2000 steps without one (runtime/fp16/loss_scaler.py:
DynamicLossScaler). Both begin at 2**16. Otherwise other steps would be left out."""


def deepspeed_config(target: Target) -> dict[str, object]:
    """Content of the JSON file, for stages 1 to 3.

    Under the Trainer everything that has a Trainer option says `auto`: it refuses values that differ from its own
    (transformers integrations/deepspeed.py: fill_match). Elsewhere `auto` is what Accelerate reads from the DataLoader.
    """
    strategy, auto = target.strategy, target.in_trainer
    other = auto or target.batch_is_users
    config: dict[str, object] = {
        "train_micro_batch_size_per_gpu": _AUTO if other else strategy.micro_batch_size,
        "gradient_accumulation_steps": _AUTO if other else strategy.gradient_accumulation_steps,
        "train_batch_size": _AUTO if other else strategy.global_batch_size,
    }
    # Written where nothing is clipped too: without the key DeepSpeed clips to 1.0 (runtime/constants.py:
    # GRADIENT_CLIPPING_DEFAULT), and under Accelerate so does `auto` (accelerator.py: _prepare_deepspeed).
    config["gradient_clipping"] = _AUTO if auto else target.max_grad_norm or 0.0
    # Under fp8 what surrounds the float8 products is bf16 (accelerate: DeepSpeedPlugin.set_mixed_precision).
    for kind in ("bf16", "fp16"):
        wanted = target.precision.deepspeed == kind
        config[kind] = {"enabled": _AUTO if auto else wanted, **(_LIKE_TORCH if wanted and kind == "fp16" else {})}
    config["zero_optimization"] = _zero(target)
    config["zero_allow_untested_optimizer"] = True
    if target.on_cpu:
        # DeepSpeed's own CPU optimizer is compiled at run time; without it, torch's steps on the host.
        config["zero_force_ds_cpu_optimizer"] = False
    return config


def _zero(target: Target) -> dict[str, object]:
    stage = target.traits.stage
    zero: dict[str, object] = {"stage": stage}
    for key, (name, default, third_only) in _SIZES.items():
        if third_only and stage != 3:
            continue
        otherwise = _AUTO if target.in_trainer and name in _FROM_HIDDEN else default
        given = target.setting(key)
        zero[name] = otherwise if given is None else int(given)
    zero["overlap_comm"] = target.setting("zero.overlap_comm", str(stage == 3).lower()) == "true"
    offload = target.strategy.offload
    pinned = target.setting("zero.pin_memory", "true") == "true" and not target.on_cpu
    if offload in ("optimizer", "all"):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": pinned}
    if offload == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": pinned}
    if offload == "nvme":
        zero["offload_optimizer"], zero["offload_param"] = _swapped(target, pinned)
        if zero["offload_param"] is None:
            del zero["offload_param"]
    if stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return zero


_PARAMETER_SIZES: Mapping[str, tuple[str, int]] = {
    "zero.param_buffer_count": ("buffer_count", 5),
    "zero.param_buffer_size": ("buffer_size", 100_000_000),
    "zero.max_in_cpu": ("max_in_cpu", 1_000_000_000),
}
"""As `_SIZES`, of offload_param (runtime/zero/offload_config.py)."""


def _swapped(target: Target, pinned: bool) -> tuple[dict[str, object], dict[str, object] | None]:
    """Both tables for swap files; the second is None where weights stay on the device.

    Other than with `cpu` DeepSpeed pins its own buffers whatever is said; a CPU rank can have swap files too.
    """
    path = target.setting("zero.nvme_path", NVME_PATH)
    count = int(target.setting("zero.optimizer_buffer_count", "4") or 4)
    optimizer: dict[str, object] = {"device": "nvme", "nvme_path": path, "buffer_count": count, "pin_memory": pinned}
    device = target.setting("zero.offload_param", "nvme")
    if device == "none":
        return optimizer, None
    if device == "cpu":
        return optimizer, {"device": "cpu", "pin_memory": pinned}
    sizes = {name: int(target.setting(key) or default) for key, (name, default) in _PARAMETER_SIZES.items()}
    return optimizer, {"device": "nvme", "nvme_path": path, "pin_memory": pinned, **sizes}
