"""ZeRO-3 as DeepSpeed runs it: optimizer states, masters, gradients and weights partitioned.

Mirrors deepspeed/runtime/zero/stage3.py: DeepSpeedZeroOptimizer_Stage3 and
deepspeed/runtime/zero/partitioned_param_coordinator.py: PartitionedParameterCoordinator, under accelerate
accelerator.py: _prepare_deepspeed.
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
    from collections.abc import Iterator

    from gpu_plan.planner.strategy.base import RankContext, RankPlan
    from gpu_plan.planner.trace.variant import Regime

TRAITS = Traits(
    name="zero3",
    title="ZeRO-3",
    place=7,
    moving_parts=5,
    engine=Engine.DEEPSPEED,
    stage=3,
    one_device=False,
    replicates=False,
    context_parallel="ulysses",
    cpu_ranks=False,
    offloads=(Offload.NONE, Offload.OPTIMIZER, Offload.ALL, Offload.NVME),
    settings=frozenset(
        {
            "zero.reduce_bucket_size",
            "zero.overlap_comm",
            "zero.pin_memory",
            "zero.prefetch_bucket_size",
            "zero.param_persistence_threshold",
            "zero.max_live_parameters",
            "zero.max_reuse_distance",
            "zero.sub_group_size",
            "zero.nvme_path",
            "zero.offload_param",
            "zero.max_in_cpu",
            "zero.param_buffer_count",
            "zero.param_buffer_size",
            "zero.optimizer_buffer_count",
        }
    ),
    flags=("--use_deepspeed", "--zero_stage", "3"),
    packages=("deepspeed",),
    wrapped_by=frozenset({"deepspeed"}),
    seen_as=("DeepSpeedEngine 3",),
    # Over one GPU it partitions nothing: all that it adds to ZeRO-2 is that parameters can leave the device.
    searched=Searched(over="devices", alone=(Offload.ALL, Offload.NVME)),
    compiled=Compiled(regions=None, note="ZeRO-3's hooks cut every graph: the step is counted as it is written"),
    host=Host(loads="partitioned", saves="gathered"),
    checkpoint=Checkpoint(form=Form.ZERO_PARAMETERS, made_from=(Form.ZERO_OPTIMIZER, Form.ZERO_PARAMETERS)),
    ladder=Ladder(then=(), offloads=(Offload.OPTIMIZER, Offload.ALL)),
    faults=frozenset({Fault.SAVES_WRAPPED, Fault.PREPARED_APART}),
)


class Zero3(HasTraits):
    """Weights are gathered module by module, ahead of their use once the order of modules is known."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.zero.common import adapted_regime, deepspeed_regime

        return adapted_regime(precision, stack, peft) if peft.adapts else deepspeed_regime(precision)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.zero import common

        if context.peft.quantises and context.setting("quant.base", context.peft.traits.base) == "int8":
            return "bitsandbytes' int8 layers keep their weights in an attribute (CB) that DeepSpeed does not partition"
        return common.refuses(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.zero.stage3.infinity import rank_plan

        return rank_plan(context)

    def prepares(self, context: "RankContext") -> "Iterator[None]":
        from gpu_plan.planner.strategy.zero.stage3.infinity import preparing

        return preparing(context)


STRATEGY = Zero3()
