"""HSDP: FSDP2 inside each replica, gradients summed across replicas.

Mirrors torch/distributed/fsdp/_fully_shard (torch 2.13) on a mesh of two dimensions: _fsdp_collectives.py:
foreach_reduce all-reduces the reduce-scattered shard in the reduce dtype over the replicas, and
_fsdp_param_group.py: AllReduceState keeps that buffer beside its fp32 copy, one for every group, until
finalize_backward; and accelerate 1.15 parallelism_config.py: dp_replicate_size × dp_shard_size. Everything else is as
in gpu_plan.planner.strategy.fsdp2.rank.
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
    name="hsdp",
    title="HSDP",
    place=4,
    moving_parts=3,
    engine=Engine.FSDP2,
    stage=3,
    one_device=False,
    replicates=True,
    unreplicated="fsdp",
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
    seen_as=(
        "FSDPModule over replicas",
        "FullyShardedDataParallel HYBRID_SHARD",
        "FullyShardedDataParallel _HYBRID_SHARD_ZERO2",
    ),
    searched=Searched(over="nodes", alone=()),
    compiled=Compiled(
        regions="blocks",
        note="FSDP's hooks cut the model's graph: blocks are counted compiled, norm, head and loss as written",
        note_holds_regionally=False,
    ),
    host=Host(loads="upcast", saves="shards"),
    checkpoint=Checkpoint(form=Form.FSDP2_SHARDS, made_from=(Form.WHOLE,)),
    ladder=Ladder(then=("fsdp",), offloads=()),
    faults=frozenset({Fault.PREPARED_APART}),
)


class HybridShardedDataParallel(HasTraits):
    """A sharded copy on each node (or in each of `--dp-replicate` groups)."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.fsdp2.rank import sharded_regime

        return sharded_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.fsdp2.rank import refuses_sharding

        if context.world_size == 1:
            return "there is only one GPU"
        if context.replicate == 1:
            return "HSDP replicates across nodes and there is only one: give --dp-replicate, or use fsdp"
        if context.shard_ranks == 1:
            return "every GPU would hold a whole replica: that is ddp"
        if 1 < context.context_parallel == context.shard_ranks:
            # accelerate 1.15 parallelism_config.py: ParallelismConfig.__post_init__.
            return "Accelerate refuses replicas whose ranks all share one sample: give --dp-replicate, or use fsdp"
        if context.shard_ranks % context.context_parallel:
            return f"--cp {context.context_parallel} does not divide the {context.shard_ranks} GPUs of a replica"
        return refuses_sharding(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.fsdp2.rank import sharded_rank

        return sharded_rank(context)


STRATEGY = HybridShardedDataParallel()
