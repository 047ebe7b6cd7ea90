"""The strategies there are, and those of the interface that do not exist yet."""

from planner.errors import NotBuiltError, UsageError
from planner.nearest import did_you_mean
from planner.strategy.base import Strategy
from planner.strategy.ddp import DistributedDataParallel
from planner.strategy.fsdp import FullyShardedDataParallel
from planner.strategy.fsdp1 import FullyShardedDataParallel1
from planner.strategy.hsdp import HybridShardedDataParallel
from planner.strategy.single import Single
from planner.strategy.zero1 import Zero1
from planner.strategy.zero2 import Zero2
from planner.strategy.zero3 import Zero3

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
