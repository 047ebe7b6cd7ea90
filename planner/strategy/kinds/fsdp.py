"""FSDP2: parameters, gradients and optimizer state sharded, units gathered as they are needed."""

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
    name="fsdp",
    title="FSDP2",
    place=2,
    moving_parts=2,
    engine=Engine.FSDP2,
    stage=3,
    one_device=False,
    replicates=False,
    context_parallel="ring",
    cpu_ranks=False,
    offloads=(Offload.NONE, Offload.ALL),
    settings=frozenset(
        {
            "fsdp.reshard_after_forward",
            "fsdp.sync_each_batch",
            "dtype.reduce",
            "quant.storage",
            "fp8.backend",
            "fp8.all_gather",
            "cp.rotation",
            "checkpoint.offload",
        }
    ),
    flags=("--use_fsdp", "--fsdp_version", "2", "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
    packages=(),
    wrapped_by=frozenset({"fully_shard"}),
    seen_as=("FSDPModule",),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(
        regions="blocks",
        note="FSDP's hooks cut the model's graph: blocks are counted compiled, norm, head and loss as written",
        note_holds_regionally=False,
    ),
    host=Host(loads="upcast", saves="shards"),
    checkpoint=Checkpoint(form=Form.FSDP2_SHARDS, made_from=(Form.WHOLE,)),
    ladder=Ladder(then=(), offloads=(Offload.ALL,)),
    faults=frozenset({Fault.SAVES_WRAPPED, Fault.PREPARED_APART}),
)


class FullyShardedDataParallel(HasTraits):
    """FSDP2 over all ranks, as accelerate sets it up."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.fsdp2.rank import sharded_regime

        return sharded_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.fsdp2.rank import refuses_sharding

        return refuses_sharding(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.fsdp2.rank import sharded_rank

        return sharded_rank(context)


STRATEGY = FullyShardedDataParallel()
