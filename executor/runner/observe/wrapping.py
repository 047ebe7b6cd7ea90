"""What a rank finds around its model, in words of its own, and the strategy that the launching process calls so.

A rank knows wrappers, not strategies: what `--strategy` calls them it is told, in `names.STRATEGIES`.
"""

import json
import os
from collections.abc import Mapping

from gpu_plan.executor import names

NOTHING = "nothing"
DDP = "DistributedDataParallel"
FSDP2 = "FSDPModule"
FSDP2_OVER_REPLICAS = "FSDPModule over replicas"
SPREAD = "DTensor"
"""Ranks compute one copy together."""
FSDP2_OF_SPREAD = "FSDPModule of DTensors"
FSDP2_OF_SPREAD_OVER_REPLICAS = "FSDPModule of DTensors over replicas"
FSDP2_OF_EXPERTS = "FSDPModule of experts"
"""Ranks hold experts of which others hold the rest."""
FSDP2_OF_EXPERTS_OVER_REPLICAS = "FSDPModule of experts over replicas"


def fsdp1(sharding: str) -> str:
    """FSDP1 with a sharding strategy, as torch names it: `FULL_SHARD`."""
    return f"FullyShardedDataParallel {sharding}"


def deepspeed(stage: int) -> str:
    """DeepSpeed's engine at a ZeRO stage; 0 is none."""
    return f"DeepSpeedEngine {stage}"


def stage(data: str, *, together: bool = False) -> str:
    """One stage of a pipeline, by what its parameters are for the ranks of other pipelines (Layout.data)."""
    inside = {"averaged": DDP, "sharded": FSDP2_OF_SPREAD if together else FSDP2}.get(data, SPREAD if together else "")
    return f"PipelineStage of {inside}" if inside else "PipelineStage"


def strategy_called(wrapping: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The strategy that the launching process calls so; None where it has not said. Never raises."""
    env = os.environ if environment is None else environment
    try:
        told = json.loads(env.get(names.STRATEGIES, "{}"))
    except ValueError:
        return None
    found = told.get(wrapping) if isinstance(told, dict) else None
    return found if isinstance(found, str) else None
