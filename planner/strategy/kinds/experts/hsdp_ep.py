"""HSDP × expert parallel: FSDP2 × expert parallel within each replica, gradients summed over the replicas.

transformers 5.23 distributed/fsdp.py: apply_fully_sharded_data_parallelism shards over `fsdp`, experts over `efsdp`,
and replicates both over `dp_replicate`.
"""

from typing import TYPE_CHECKING

from gpu_plan.planner.strategy.traits import (
    Checkpoint,
    Compiled,
    Engine,
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
    name="hsdp_ep",
    title="HSDP × EP",
    place=12,
    moving_parts=5,
    engine=Engine.DTENSOR,
    stage=3,
    one_device=False,
    replicates=True,
    unreplicated="fsdp_ep",
    expert_parallel="must",
    untensored="hsdp",
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset({"dtype.reduce", "fsdp.reshard_after_forward"}),
    flags=(),
    packages=(),
    wrapped_by=frozenset(),
    seen_as=("FSDPModule of experts over replicas",),
    searched=Searched(over="nodes", alone=()),
    compiled=Compiled(regions=None, note="what torch.compile makes of a model on several ranks is not in this version"),
    host=Host(loads="slices", saves="gathered"),
    checkpoint=Checkpoint(form=Form.TENSOR_SHARDS, made_from=()),
    ladder=Ladder(then=(), offloads=()),
    faults=frozenset(),
)


class HybridShardedExpertParallel(HasTraits):
    """Experts over groups of ranks, everything else sharded over the ranks of a replica."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.tensor import shared_and_sharded_regime

        return shared_and_sharded_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.fsdp2.rank import refuses_sharding
        from gpu_plan.planner.strategy.tensor import refuses_spread

        if context.replicate == 1:
            return "HSDP replicates across nodes and there is only one: give --dp-replicate, or use fsdp_ep"
        if context.shard_ranks <= 1:
            return "every GPU would hold a whole replica, which leaves no others for the experts: use fsdp_ep"
        return refuses_spread(context) or refuses_sharding(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.tensor import shared_and_sharded_rank

        return shared_and_sharded_rank(context)


STRATEGY = HybridShardedExpertParallel()
