"""ZeRO-3 as DeepSpeed runs it: optimizer states, masters, gradients and weights partitioned.

Mirrors deepspeed/runtime/zero/stage3.py: DeepSpeedZeroOptimizer_Stage3 and
deepspeed/runtime/zero/partitioned_param_coordinator.py: PartitionedParameterCoordinator, under accelerate
accelerator.py: _prepare_deepspeed.
"""

from gpu_plan.planner.strategy.base import Offload, RankContext, RankPlan
from gpu_plan.planner.strategy.zero import common as deepspeed_common
from gpu_plan.planner.strategy.zero.stage3.infinity import rank_plan
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack


class Zero3:
    """Weights are gathered module by module, ahead of their use once the order of modules is known."""

    name = "zero3"
    title = "ZeRO-3"
    zero_stage: int | None = 3
    offloads: tuple[Offload, ...] = (Offload.NONE, Offload.OPTIMIZER, Offload.ALL, Offload.NVME)

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
        return deepspeed_common.deepspeed_regime(precision)

    def refuses(self, context: RankContext) -> str | None:
        if context.peft.quantises and context.setting("quant.base", context.peft.traits.base) == "int8":
            return "bitsandbytes' int8 layers keep their weights in an attribute (CB) that DeepSpeed does not partition"
        return deepspeed_common.refuses(context)

    def rank(self, context: RankContext) -> RankPlan:
        return rank_plan(context)
