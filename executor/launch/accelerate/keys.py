"""Every key that Accelerate reads from its configuration file, and a check against them.

Accelerate refuses unknown top-level keys and passes over unknown nested ones in silence. Sources, accelerate 1.15:
commands/config/config_args.py (BaseConfig, ClusterConfig) for the top level; for the tables, the options of
commands/launch.py (launch_command_parser), onto which `_validate_launch_command` copies them.
"""

from collections.abc import Mapping

from gpu_plan.planner.nearest import did_you_mean

_TOP = (
    "compute_environment distributed_type mixed_precision use_cpu debug num_processes machine_rank num_machines gpu_ids"
    " main_process_ip main_process_port rdzv_backend same_network main_training_function enable_cpu_affinity"
    " downcast_bf16 tpu_name tpu_zone tpu_use_cluster tpu_use_sudo command_file commands tpu_vm tpu_env"
    " fp8_config deepspeed_config fsdp_config parallelism_config megatron_lm_config mpirun_config dynamo_config"
)
_FSDP = (
    "version sharding_strategy reshard_after_forward offload_params min_num_params auto_wrap_policy"
    " transformer_layer_cls_to_wrap backward_prefetch forward_prefetch state_dict_type use_orig_params"
    " cpu_ram_efficient_loading sync_module_states activation_checkpointing activation_checkpointing_offload"
    " ignored_modules"
)
_PARALLELISM = (
    "dp_replicate_size dp_shard_size tp_size cp_size cp_backend cp_comm_strategy sp_size sp_backend sp_seq_length"
    " sp_seq_length_is_variable sp_attn_implementation"
)
_DYNAMO = "backend mode use_fullgraph use_dynamic use_regional_compilation"
_FP8 = (
    "backend use_autocast_during_eval margin interval format amax_history_len amax_compute_algo"
    " override_linear_precision opt_level enable_fsdp_float8_all_gather pad_inner_dim"
)
_DEEPSPEED = (
    "deepspeed_config_file zero_stage offload_optimizer_device offload_param_device offload_optimizer_nvme_path"
    " offload_param_nvme_path gradient_accumulation_steps gradient_clipping zero3_init_flag zero3_save_16bit_model"
    " deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher"
    " deepspeed_moe_layer_cls_names"
)


def _either(names: str, prefix: str) -> frozenset[str]:
    """Names with and without the prefix: `_validate_launch_command` adds a missing one."""
    return frozenset(names.split()) | {prefix + name for name in names.split()}


TOP = frozenset(_TOP.split())
NESTED: Mapping[str, frozenset[str]] = {
    "fsdp_config": _either(_FSDP, "fsdp_"),
    "fp8_config": _either(_FP8, "fp8_"),
    "dynamo_config": _either(_DYNAMO, "dynamo_"),
    "parallelism_config": frozenset(f"parallelism_config_{name}" for name in _PARALLELISM.split()),
    "deepspeed_config": frozenset(_DEEPSPEED.split()),
}
"""Tables that the launch files may hold, and their keys."""

_ONLY_ONE_PLACE = (
    "mixed_precision zero_stage gradient_accumulation_steps gradient_clipping offload_optimizer_device"
    " offload_param_device offload_optimizer_nvme_path offload_param_nvme_path zero3_save_16bit_model"
)
"""What DeepSpeedPlugin refuses beside a DeepSpeed file (utils/dataclasses.py: _deepspeed_config_checks)."""


def check_config(config: Mapping[str, object]) -> None:
    """ValueError for a configuration that Accelerate would refuse, or of which it would drop a part in silence."""
    for key, value in config.items():
        if key not in TOP:
            raise ValueError(f"accelerate knows no key {key!r}.{did_you_mean(key, TOP, limit=1)}")
        if isinstance(value, Mapping):
            known = NESTED.get(key)
            if known is None:
                raise ValueError(f"the table {key} is not one that launch files use")
            for name in value:
                if name not in known:
                    raise ValueError(f"accelerate passes over {key}.{name}.{did_you_mean(name, known, limit=1)}")
    if "distributed_type" not in config:
        raise ValueError("distributed_type is missing")
    deepspeed = config.get("deepspeed_config")
    if isinstance(deepspeed, Mapping) and "deepspeed_config_file" in deepspeed:
        both = sorted(frozenset(_ONLY_ONE_PLACE.split()) & {*config, *deepspeed})
        if both:
            raise ValueError(f"{', '.join(both)} belong in the DeepSpeed file alone")
