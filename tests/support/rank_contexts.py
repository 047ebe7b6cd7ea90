"""Small configurations for tests of strategies."""

from dataclasses import replace
from typing import Any

from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Precision, Stack


def small_context(trace: StepTrace, **changes: Any) -> RankContext:
    """fp32 on four ranks without CUDA, clipping or accumulation, but for `changes`."""
    base = RankContext(
        trace=trace,
        precision=Precision("fp32"),
        optimizer=Optimizer("adamw"),
        stack=Stack.PLAIN,
        clipping=False,
        checkpointing=Checkpointing.NONE,
        accumulation_steps=1,
        world_size=4,
        capability=None,
    )
    return replace(base, **changes)
