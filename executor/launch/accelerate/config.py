"""A target as Accelerate's configuration file. Pure."""

from collections.abc import Callable, Mapping

from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.names import DEEPSPEED_FILE
from gpu_plan.executor.runner.parallel.degrees import Degrees
from gpu_plan.planner.strategy.traits import Engine

RENDEZVOUS = "c10d"
"""torchrun's elastic store, held by the first host's agent."""
RENDEZVOUS_CONF = "join_timeout=900,read_timeout=300"
"""Seconds: how long hosts wait for each other, and for the store of one that is not up yet."""


_ROTATION = "parallelism_config_cp_comm_strategy"


def accelerate_config(target: Target) -> dict[str, object]:
    """Content of the YAML file, every key one that Accelerate 1.15 reads."""
    config: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _distributed_type(target),
        "num_processes": target.world_size,
        "num_machines": target.nodes,
        "machine_rank": target.machine_rank,
        "use_cpu": target.on_cpu and target.world_size == 1 and not target.uses_deepspeed,
        "debug": False,
        "enable_cpu_affinity": False,
        "main_training_function": "main",
        **_rendezvous(target),
    }
    if not target.uses_deepspeed:
        config["mixed_precision"] = target.precision.launcher
    if target.precision.float8:
        config["fp8_config"] = _float8(target)
    if target.uses_deepspeed:
        config["deepspeed_config"] = _deepspeed(target)
    if target.uses_fsdp:
        config["fsdp_config"] = _SHARDED[target.traits.engine](target)
    if target.degrees is not None:
        config["parallelism_config"] = _spread(target.degrees)
    elif target.traits.replicates or target.strategy.context_parallel > 1:
        config["parallelism_config"] = _shared_tokens(target) if target.uses_deepspeed else _replicas(target)
    if target.compiler is not None:
        config["dynamo_config"] = _dynamo(target, target.compiler)
    return config


def _float8(target: Target) -> dict[str, object]:
    """Transformer Engine's own recipe is accelerate's default (utils/dataclasses.py: TERecipeKwargs)."""
    if target.setting("fp8.backend", "torchao") == "te":
        return {"fp8_backend": "TE"}
    gathers = target.setting("fp8.all_gather", "true") == "true"
    return {"fp8_backend": "AO", "fp8_enable_fsdp_float8_all_gather": gathers}


def _distributed_type(target: Target) -> str:
    if target.uses_deepspeed:
        return "DEEPSPEED"
    if target.uses_fsdp:
        return "FSDP"
    # On a CPU too: MULTI_CPU starts one process whatever num_processes says, unless it is under MPI.
    return "MULTI_GPU" if target.world_size > 1 else "NO"


def _rendezvous(target: Target) -> dict[str, object]:
    """Where ranks meet: on one node at a free port, among several through the elastic agent's own store."""
    host, port = target.endpoint
    if target.nodes == 1:
        return {"main_process_port": port}
    # With `same_network` true Accelerate names a master address instead of the rendezvous endpoint.
    return {"same_network": False, "rdzv_backend": RENDEZVOUS, "main_process_ip": host, "main_process_port": port}


def _deepspeed(target: Target) -> dict[str, object]:
    """All else stands in the DeepSpeed file: Accelerate refuses it in both."""
    config: dict[str, object] = {
        "deepspeed_config_file": str(target.folder / DEEPSPEED_FILE),
        "zero3_init_flag": target.traits.shards_model,
    }
    if target.nodes > 1:
        config["deepspeed_multinode_launcher"] = "standard"
    return config


def _wrap(target: Target) -> dict[str, object]:
    if not target.units:
        # Plans without units: Accelerate takes the model's own `_no_split_modules`.
        return {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
    return {
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": ",".join(target.units),
    }


def _fsdp2(target: Target) -> dict[str, object]:
    return {
        "fsdp_version": 2,
        **_wrap(target),
        "fsdp_reshard_after_forward": target.setting("fsdp.reshard_after_forward", "true") == "true",
        "fsdp_offload_params": target.strategy.offload == "all",
        # Accelerator refuses it beside torchao's float8 layers.
        "fsdp_cpu_ram_efficient_loading": not target.precision.float8,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_activation_checkpointing": target.wrapper_checkpoints,
        **({"fsdp_activation_checkpointing_offload": True} if target.checkpoints_on_host else {}),
    }


def _fsdp1(target: Target) -> dict[str, object]:
    return {
        "fsdp_version": 1,
        **_wrap(target),
        "fsdp_sharding_strategy": "FULL_SHARD",
        "fsdp_backward_prefetch": "BACKWARD_PRE",
        "fsdp_forward_prefetch": False,
        "fsdp_use_orig_params": True,
        "fsdp_offload_params": target.strategy.offload == "all",
        # Both ask for an accelerator's current device when the plugin is made.
        "fsdp_cpu_ram_efficient_loading": not target.on_cpu,
        "fsdp_sync_module_states": not target.on_cpu,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_activation_checkpointing": target.wrapper_checkpoints,
    }


_SHARDED: Mapping[Engine, Callable[[Target], dict[str, object]]] = {Engine.FSDP2: _fsdp2, Engine.FSDP1: _fsdp1}


def _dynamo(target: Target, backend: str) -> dict[str, object]:
    return {
        "dynamo_backend": backend.upper(),
        "dynamo_mode": target.setting("compile.mode", "default"),
        # As Accelerate's launcher has both where they are not given.
        "dynamo_use_fullgraph": False,
        "dynamo_use_dynamic": False,
        "dynamo_use_regional_compilation": target.setting("compile.regional", "false") == "true",
    }


def _spread(degrees: Degrees) -> dict[str, object]:
    """What the data loaders share out by; model and gradients are transformers' own affair."""
    return {
        "parallelism_config_dp_replicate_size": degrees.dp_replicate_size,
        "parallelism_config_dp_shard_size": degrees.fsdp_size,
        "parallelism_config_tp_size": degrees.tp_size,
        "parallelism_config_cp_size": 1,
    }


def _replicas(target: Target) -> dict[str, object]:
    replicas = target.replicas if target.traits.replicates else 1
    context = target.strategy.context_parallel
    around = {} if context == 1 else {_ROTATION: target.setting("cp.rotation", "allgather")}
    return {
        "parallelism_config_dp_replicate_size": replicas,
        "parallelism_config_dp_shard_size": target.world_size // replicas // context,
        "parallelism_config_tp_size": target.strategy.tensor_parallel,
        "parallelism_config_cp_size": context,
        **around,
    }


def _shared_tokens(target: Target) -> dict[str, object]:
    """DeepSpeed makes the groups itself, and shares states out over all of their ranks (accelerate
    parallelism_config.py: ParallelismConfig.build_device_mesh)."""
    flash = target.saved.workload.get("attention") == "flash"
    return {
        "parallelism_config_sp_size": target.strategy.context_parallel,
        "parallelism_config_sp_backend": "deepspeed",
        "parallelism_config_sp_attn_implementation": "flash_attention_2" if flash else "sdpa",
    }
