"""One device, the whole model on it."""

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
    name="single",
    title="single device",
    gpu_title="single GPU",
    place=0,
    moving_parts=0,
    engine=Engine.NONE,
    stage=0,
    one_device=True,
    replicates=False,
    cpu_ranks=True,
    offloads=(Offload.NONE,),
    settings=frozenset({"dtype.params", "quant.upcast", "fp8.backend"}),
    flags=(),
    packages=(),
    wrapped_by=frozenset(),
    seen_as=("nothing",),
    searched=Searched(over=None, alone=(Offload.NONE,)),
    compiled=Compiled(regions="model"),
    host=Host(loads="as computed", saves="whole"),
    checkpoint=Checkpoint(form=Form.WHOLE, made_from=(Form.FSDP2_SHARDS,)),
    ladder=Ladder(then=(), offloads=(), only_offloaded=("zero2", "zero3")),
    faults=frozenset(),
)


class Single(HasTraits):
    """No distribution: torch and accelerate as they are on one device."""

    traits = TRAITS

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> "Regime":
        from gpu_plan.planner.strategy.base import autocast_regime

        return autocast_regime(precision, stack, peft)

    def refuses(self, context: "RankContext") -> str | None:
        return "there is more than one GPU" if context.world_size > 1 else None

    def rank(self, context: "RankContext") -> "RankPlan":
        from gpu_plan.planner.strategy.replica import single_rank

        return single_rank(context)


STRATEGY = Single()
