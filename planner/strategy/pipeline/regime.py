"""In what types a stage that stands whole computes."""

from dataclasses import replace

from gpu_plan.planner.strategy.base import autocast_regime
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack


def stage_regime(precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
    """fp32 weights, each stage's forward under autocast when mixed; what a stage puts out is sent as it is."""
    return replace(autocast_regime(precision, stack, peft), outputs_to_fp32=False)
