"""What `accelerate launch` sets for its ranks from a configuration: for launchers that read no such file. Pure.

Mirrors accelerate 1.15 utils/launch.py: prepare_multi_gpu_env, prepare_deepspeed_cmd_env,
prepare_extend_env_parallelism_config, setup_fp8_env; a test holds it to theirs.
"""

from collections.abc import Mapping

_FSDP: Mapping[str, str] = {
    "fsdp_version": "FSDP_VERSION",
    "fsdp_sharding_strategy": "FSDP_SHARDING_STRATEGY",
    "fsdp_reshard_after_forward": "FSDP_RESHARD_AFTER_FORWARD",
    "fsdp_offload_params": "FSDP_OFFLOAD_PARAMS",
    "fsdp_auto_wrap_policy": "FSDP_AUTO_WRAP_POLICY",
    "fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
    "fsdp_backward_prefetch": "FSDP_BACKWARD_PREFETCH",
    "fsdp_forward_prefetch": "FSDP_FORWARD_PREFETCH",
    "fsdp_state_dict_type": "FSDP_STATE_DICT_TYPE",
    "fsdp_use_orig_params": "FSDP_USE_ORIG_PARAMS",
    "fsdp_cpu_ram_efficient_loading": "FSDP_CPU_RAM_EFFICIENT_LOADING",
    "fsdp_sync_module_states": "FSDP_SYNC_MODULE_STATES",
    "fsdp_activation_checkpointing": "FSDP_ACTIVATION_CHECKPOINTING",
    "fsdp_activation_checkpointing_offload": "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
}


def accelerate_environment(config: Mapping[str, object]) -> dict[str, str]:
    """Variables that make Accelerate's state the same as `accelerate launch --config_file` with this content."""
    # Beside a DeepSpeed file fp8 alone is the environment's to say.
    otherwise = "fp8" if "fp8_config" in config else "no"
    found = {"ACCELERATE_MIXED_PRECISION": str(config.get("mixed_precision", otherwise))}
    for name in ("dynamo_config", "fp8_config"):
        for key, value in _table(config, name).items():
            found[f"ACCELERATE_{key.upper()}"] = str(value)  # a bool as Python writes it
    if config["distributed_type"] == "FSDP":
        found["ACCELERATE_USE_FSDP"] = "true"
        found |= _named(_table(config, "fsdp_config"), _FSDP)
    if config["distributed_type"] == "DEEPSPEED":
        deepspeed = _table(config, "deepspeed_config")
        found["ACCELERATE_USE_DEEPSPEED"] = "true"
        found["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = str(deepspeed["deepspeed_config_file"])
        found["ACCELERATE_DEEPSPEED_ZERO3_INIT"] = _text(deepspeed["zero3_init_flag"])
    parallelism = _table(config, "parallelism_config")
    if parallelism:
        found["ACCELERATE_USE_PARALLELISM_CONFIG"] = "true"
        found |= {key.upper(): str(value) for key, value in parallelism.items()}
    return found


def _named(table: Mapping[str, object], names: Mapping[str, str]) -> dict[str, str]:
    """KeyError for a key without a variable: it would be dropped in silence."""
    return {names[key]: _text(value) for key, value in table.items()}


def _table(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
