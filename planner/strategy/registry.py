"""The strategies there are, and those of the interface that do not exist yet."""

from gpu_plan.planner.errors import NotBuiltError, UsageError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.strategy.base import Strategy
from gpu_plan.planner.strategy.ddp import DistributedDataParallel
from gpu_plan.planner.strategy.fsdp1.strategy import FullyShardedDataParallel1
from gpu_plan.planner.strategy.fsdp2.strategy import FullyShardedDataParallel
from gpu_plan.planner.strategy.hsdp import HybridShardedDataParallel
from gpu_plan.planner.strategy.single import Single
from gpu_plan.planner.strategy.zero.zero1 import Zero1
from gpu_plan.planner.strategy.zero.zero2 import Zero2
from gpu_plan.planner.strategy.zero.zero3 import Zero3

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Single(),
        DistributedDataParallel(),
        FullyShardedDataParallel(),
        FullyShardedDataParallel1(),
        HybridShardedDataParallel(),
        Zero1(),
        Zero2(),
        Zero3(),
    )
}

ONLY_ON_REQUEST = frozenset({"fsdp1"})
"""Strategies that the search leaves out unless `--strategy` names them: older forms of what it tries anyway."""

NOT_BUILT = ("megatron",)
"""Strategies of the interface that later versions bring."""


def find_strategy(name: str) -> Strategy:
    """The strategy called `name`; UsageError for an unknown one, NotBuiltError for one that is still to come."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    if name in NOT_BUILT:
        raise NotBuiltError(f"--strategy {name}")
    hint = did_you_mean(name, STRATEGIES)
    raise UsageError(f"--strategy {name!r} is unknown: use auto, {', '.join(STRATEGIES)}.{hint}")
