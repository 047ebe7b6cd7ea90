"""ZeRO-1 as DeepSpeed runs it: optimizer states and masters partitioned, gradients whole until they are reduced.

Mirrors deepspeed/runtime/zero/stage_1_and_2.py: DeepSpeedZeroOptimizer with partition_grads=False, under
accelerate accelerator.py: _prepare_deepspeed.
"""

from gpu_plan.planner.strategy.base import Offload, RankContext, RankPlan
from gpu_plan.planner.strategy.zero import common as deepspeed_common
from gpu_plan.planner.strategy.zero.stage12.rank import rank_plan
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack


class Zero1:
    """Every rank steps its partition; gradients are all-reduced after the last backward."""

    name = "zero1"
    title = "ZeRO-1"
    zero_stage: int | None = 1
    offloads: tuple[Offload, ...] = (Offload.NONE, Offload.OPTIMIZER)

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
        return deepspeed_common.deepspeed_regime(precision)

    def refuses(self, context: RankContext) -> str | None:
        return deepspeed_common.refuses(context)

    def rank(self, context: RankContext) -> RankPlan:
        return rank_plan(context, partitioned=False)
