"""DistributedDataParallel: a replica per rank, gradients averaged in buckets (gpu_plan.planner.strategy.buckets)."""

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
    name="ddp",
    title="DDP",
    place=1,
    moving_parts=1,
    engine=Engine.DDP,
    stage=0,
    one_device=False,
    replicates=False,
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset({"dtype.params", "quant.upcast", "ddp.gradient_as_bucket_view", "fp8.backend"}),
    flags=("--multi_gpu",),
    packages=(),
    wrapped_by=frozenset({"DistributedDataParallel", "DDP"}),
    # DeepSpeed without a stage and FSDP1 without shards hold as much and reduce as DDP does.
    seen_as=("DistributedDataParallel", "DeepSpeedEngine 0", "FullyShardedDataParallel NO_SHARD"),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(
        regions="model",
        note="Dynamo cuts graphs at DDP's buckets (torch._dynamo.config.optimize_ddp): they are counted uncut",
        approximate=True,
    ),
    host=Host(loads="as computed", saves="whole"),
    checkpoint=Checkpoint(form=Form.WHOLE, made_from=(Form.FSDP2_SHARDS,)),
    ladder=Ladder(then=("fsdp", "zero2", "zero3"), offloads=()),
    faults=frozenset({Fault.SAVES_WRAPPED, Fault.ASKS_WRAPPER}),
)


class DistributedDataParallel(HasTraits):
    """torch's DDP as accelerate wraps it: gradients are not bucket views unless asked for."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.base import autocast_regime

        return autocast_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        return "there is only one GPU" if context.world_size == 1 else None

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.buckets import bucketed_rank

        return bucketed_rank(context)


STRATEGY = DistributedDataParallel()
