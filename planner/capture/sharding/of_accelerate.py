"""How a script of Accelerate's asks for its ranks by itself: a ParallelismConfig, an FSDP plugin.

Under capture its Accelerator is one process that shards nothing; what was asked for is the plan's strategy.
"""

from typing import Any

from gpu_plan.planner.capture.sharding.own import sharding
from gpu_plan.planner.errors import InputError

_OTHERWISE = (("tp", "--tp"), ("cp", "--cp"), ("sp", "--sp"))
"""Degrees beyond data parallel, and the options that plan them for a model by name."""


def take_degrees(module: Any, world_size: int) -> None:
    """accelerate/parallelism_config.py: ParallelismConfig tells its degrees and is one process's own afterwards.

    InputError for degrees of which a capture makes no plan, and for another count of devices than is planned.
    """
    kind = module.ParallelismConfig
    init = kind.__post_init__

    def asked(config: Any) -> None:
        init(config)
        _check(config, world_size)
        if config.dp_shard_size > 1:
            sharding.asked = "fully_shard"
            sharding.replicas = max(sharding.replicas, config.dp_replicate_size if config.dp_replicate_size > 1 else 0)
        elif config.dp_replicate_size > 1:
            sharding.asked = sharding.asked or "DistributedDataParallel"
        for name in ("dp_replicate", "dp_shard"):
            config._set_size(name, 1)

    kind.__post_init__ = asked


def _check(config: Any, world_size: int) -> None:
    others = [
        (name, option, getattr(config, f"{name}_size"))
        for name, option in _OTHERWISE
        if getattr(config, f"{name}_size") > 1
    ]
    if others:
        sizes = ", ".join(f"{name}_size={size}" for name, _, size in others)
        options = " ".join(f"{option} {size}" for _, option, size in others)
        raise InputError(
            f"its ParallelismConfig asks for {sizes}, of which a capture makes no plan: plan the model by name with"
            f" {options}"
        )
    if config.data_parallel_size not in (1, world_size):
        raise InputError(
            f"its ParallelismConfig is of {config.data_parallel_size} processes"
            f" (dp_replicate_size={config.dp_replicate_size}, dp_shard_size={config.dp_shard_size}), and"
            f" {world_size} {'is' if world_size == 1 else 'are'} planned: name as many --gpus"
        )


def take_plugin(module: Any) -> None:
    """accelerate/utils/dataclasses.py: FullyShardedDataParallelPlugin that the script itself makes.

    Accelerator gives it precedence over what a launch configures (accelerator.py: Accelerator.__init__).
    """
    kind = module.FullyShardedDataParallelPlugin
    init = kind.__post_init__

    def asked(plugin: Any) -> None:
        init(plugin)
        second = plugin.fsdp_version == 2
        offloaded = getattr(plugin.cpu_offload, "offload_params", False) or (
            type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"
        )
        sharding.asked = "fully_shard" if second else "FullyShardedDataParallel"
        sharding.offloaded |= bool(offloaded)
        sharding.kept |= second and plugin.reshard_after_forward is False

    kind.__post_init__ = asked
