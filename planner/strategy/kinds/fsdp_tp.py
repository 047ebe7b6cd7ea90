"""FSDP2 × tensor parallel: groups of ranks compute one copy each, and share its parts out among the groups.

transformers 5.23 distributed/mixin.py: maybe_distribute_model applies tensor parallel to the model and then FSDP2 to
what is left on each rank, over the ranks at the same place of every group.
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
    name="fsdp_tp",
    title="FSDP2 × TP",
    place=9,
    moving_parts=4,
    engine=Engine.DTENSOR,
    stage=3,
    one_device=False,
    replicates=False,
    tensor_parallel="some",
    expert_parallel="may",
    untensored="fsdp",
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset({"dtype.reduce", "fsdp.reshard_after_forward"}),
    flags=(),
    packages=(),
    wrapped_by=frozenset(),
    seen_as=("FSDPModule of DTensors",),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(regions=None, note="what torch.compile makes of a model on several ranks is not in this version"),
    host=Host(loads="slices", saves="gathered"),
    checkpoint=Checkpoint(form=Form.TENSOR_SHARDS, made_from=()),
    ladder=Ladder(then=(), offloads=()),
    faults=frozenset(),
)


class ShardedTensorParallel(HasTraits):
    """A copy of the model over each group of ranks, its parts sharded over the groups."""

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


STRATEGY = ShardedTensorParallel()
