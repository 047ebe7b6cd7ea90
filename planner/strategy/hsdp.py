"""HSDP: FSDP2 inside each replica, gradients summed across replicas.

Mirrors torch/distributed/fsdp/_fully_shard (torch 2.13) on a mesh of two dimensions: _fsdp_collectives.py:
foreach_reduce all-reduces the reduce-scattered shard in the reduce dtype over the replicas, and
_fsdp_param_group.py: AllReduceState keeps that buffer beside its fp32 copy, one for every group, until
finalize_backward; and accelerate 1.15 parallelism_config.py: dp_replicate_size × dp_shard_size. Everything else is as
in gpu_plan.planner.strategy.fsdp2.strategy.
"""

from gpu_plan.planner.strategy.base import Offload, RankContext, RankPlan
from gpu_plan.planner.strategy.fsdp2.strategy import FullyShardedDataParallel, sharded_rank
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack


class HybridShardedDataParallel:
    """A sharded copy on each node (or in each of `--dp-replicate` groups)."""

    name = "hsdp"
    title = "HSDP"
    zero_stage: int | None = None
    offloads: tuple[Offload, ...] = (Offload.NONE, Offload.ALL)

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
        return FullyShardedDataParallel().regime(precision, stack, peft)

    def refuses(self, context: RankContext) -> str | None:
        if context.world_size == 1:
            return "there is only one GPU"
        if context.replicate == 1:
            return "HSDP replicates across nodes and there is only one: give --dp-replicate, or use fsdp"
        if context.shard_ranks == 1:
            return "every GPU would hold a whole replica: that is ddp"
        return FullyShardedDataParallel().refuses(context)

    def rank(self, context: RankContext) -> RankPlan:
        return sharded_rank(context)
