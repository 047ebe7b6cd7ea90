"""FSDP2 × expert parallel: each rank holds some experts whole, all else is sharded, tokens go where their experts are.

transformers 5.23 distributed/mixin.py: maybe_distribute_model shards the experts over groups of ranks and hands tokens
over by all-to-all (distributed/expert_parallel.py: AllToAllEP); FSDP2 then shards the experts over the ranks that hold
the same ones, and everything else over all (distributed/fsdp.py: apply_fully_sharded_data_parallelism).
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
    name="fsdp_ep",
    title="FSDP2 × EP",
    place=11,
    moving_parts=4,
    engine=Engine.DTENSOR,
    stage=3,
    one_device=False,
    replicates=False,
    expert_parallel="must",
    untensored="fsdp",
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset({"dtype.reduce", "fsdp.reshard_after_forward"}),
    flags=(),
    packages=(),
    wrapped_by=frozenset(),
    seen_as=("FSDPModule of experts",),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(regions=None, note="what torch.compile makes of a model on several ranks is not in this version"),
    host=Host(loads="slices", saves="gathered"),
    checkpoint=Checkpoint(form=Form.TENSOR_SHARDS, made_from=()),
    ladder=Ladder(then=(), offloads=()),
    faults=frozenset(),
)


class ShardedExpertParallel(HasTraits):
    """Experts over groups of ranks, everything else sharded over all."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.tensor import shared_and_sharded_regime

        return shared_and_sharded_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.fsdp2.rank import refuses_sharding
        from gpu_plan.planner.strategy.tensor import refuses_spread

        return refuses_spread(context) or refuses_sharding(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.tensor import shared_and_sharded_rank

        return shared_and_sharded_rank(context)


STRATEGY = ShardedExpertParallel()
