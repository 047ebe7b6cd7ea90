"""ZeRO-1 as DeepSpeed runs it: optimizer states and masters partitioned, gradients whole until they are reduced.

Mirrors deepspeed/runtime/zero/stage_1_and_2.py: DeepSpeedZeroOptimizer with partition_grads=False, under
accelerate accelerator.py: _prepare_deepspeed.
"""

from typing import TYPE_CHECKING

from gpu_plan.planner.strategy.traits import (
    Checkpoint,
    Compiled,
    Engine,
    Fault,
    Form,
    HasTraits,
    Host,
    Ladder,
    Offload,
    Searched,
    Traits,
)
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack

if TYPE_CHECKING:
    from gpu_plan.planner.strategy.base import RankContext, RankPlan
    from gpu_plan.planner.trace.variant import Regime

TRAITS = Traits(
    name="zero1",
    title="ZeRO-1",
    place=5,
    moving_parts=5,
    engine=Engine.DEEPSPEED,
    stage=1,
    one_device=False,
    replicates=False,
    context_parallel="ulysses",
    cpu_ranks=False,
    offloads=(Offload.NONE, Offload.OPTIMIZER),
    settings=frozenset({"zero.reduce_bucket_size", "zero.overlap_comm", "zero.pin_memory"}),
    flags=("--use_deepspeed", "--zero_stage", "1"),
    packages=("deepspeed",),
    wrapped_by=frozenset({"deepspeed"}),
    seen_as=("DeepSpeedEngine 1",),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(regions="model"),
    host=Host(loads="unknown", saves="every rank"),
    checkpoint=Checkpoint(form=Form.ZERO_OPTIMIZER, made_from=(Form.ZERO_OPTIMIZER,)),
    ladder=Ladder(then=("zero2", "zero3"), offloads=(Offload.OPTIMIZER,)),
    faults=frozenset({Fault.PREPARED_APART}),
)


class Zero1(HasTraits):
    """Every rank steps its partition; gradients are all-reduced after the last backward."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.zero.common import deepspeed_regime

        return deepspeed_regime(precision)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.zero import common

        return common.refuses(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.zero.stage12.rank import rank_plan

        return rank_plan(context, partitioned=False)


STRATEGY = Zero1()
