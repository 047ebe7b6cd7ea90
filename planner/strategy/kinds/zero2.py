"""ZeRO-2 as DeepSpeed runs it: optimizer states, masters and gradients partitioned.

Mirrors deepspeed/runtime/zero/stage_1_and_2.py: DeepSpeedZeroOptimizer with partition_grads=True, under
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
    name="zero2",
    title="ZeRO-2",
    place=6,
    moving_parts=5,
    engine=Engine.DEEPSPEED,
    stage=2,
    one_device=False,
    replicates=False,
    context_parallel="ulysses",
    cpu_ranks=False,
    offloads=(Offload.NONE, Offload.OPTIMIZER),
    settings=frozenset({"zero.reduce_bucket_size", "zero.overlap_comm", "zero.pin_memory"}),
    flags=("--use_deepspeed", "--zero_stage", "2"),
    packages=("deepspeed",),
    wrapped_by=frozenset({"deepspeed"}),
    seen_as=("DeepSpeedEngine 2",),
    searched=Searched(over="devices", alone=(Offload.NONE, Offload.OPTIMIZER)),
    compiled=Compiled(regions="model"),
    host=Host(loads="unknown", saves="every rank"),
    checkpoint=Checkpoint(form=Form.ZERO_OPTIMIZER, made_from=(Form.ZERO_OPTIMIZER,)),
    ladder=Ladder(then=("zero3",), offloads=(Offload.OPTIMIZER,)),
    faults=frozenset({Fault.PREPARED_APART}),
)


class Zero2(HasTraits):
    """Gradients are reduced bucket by bucket during backward; a rank keeps those that its partition touches."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.zero.common import deepspeed_regime

        return deepspeed_regime(precision)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.zero import common

        return common.refuses(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.zero.stage12.rank import rank_plan

        return rank_plan(context, partitioned=True)


STRATEGY = Zero2()
