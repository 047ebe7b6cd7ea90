"""Tensor parallel alone: all ranks compute one copy of the model together, as the class's own plan parts it.

transformers 5.23 distributed/tensor_parallel.py: apply_tensor_parallelism. The step of one rank is traced with that
very code, so that a rank's weights, activations and collectives are in the trace; nothing is sharded beyond it.
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
    name="tp",
    title="tensor parallel",
    place=8,
    moving_parts=4,
    engine=Engine.DTENSOR,
    stage=0,
    one_device=False,
    replicates=False,
    tensor_parallel="all",
    expert_parallel="may",
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset(),
    flags=(),
    packages=(),
    wrapped_by=frozenset(),
    seen_as=("DTensor",),
    searched=Searched(over="devices", alone=()),
    compiled=Compiled(regions=None, note="what torch.compile makes of a model on several ranks is not in this version"),
    host=Host(loads="slices", saves="gathered"),
    checkpoint=Checkpoint(form=Form.TENSOR_SHARDS, made_from=()),
    ladder=Ladder(then=(), offloads=()),
    faults=frozenset(),
)


class TensorParallel(HasTraits):
    """One copy of the model over all ranks, which see the same samples."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.base import autocast_regime

        return autocast_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        from gpu_plan.planner.strategy.tensor import refuses_spread

        return refuses_spread(context)

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.tensor import shared_rank

        return shared_rank(context)


STRATEGY = TensorParallel()
