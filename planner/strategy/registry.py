"""The strategies there are: found by the folder of their files. Imports no numpy: a replay comes when it is asked."""

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from gpu_plan.planner.errors import NotBuiltError, UsageError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.strategy import kinds
from gpu_plan.planner.strategy.traits import Engine, Traits

if TYPE_CHECKING:
    from gpu_plan.planner.strategy.base import Strategy

NOT_BUILT = ("megatron",)
"""Strategies of the interface that later versions bring."""


@cache
def _found(folders: tuple[str, ...]) -> "dict[str, Strategy]":
    """By name, simplest first."""
    modules = (import_module(f"{kinds.__name__}.{found.name}") for found in pkgutil.iter_modules(folders))
    strategies: list[Strategy] = [module.STRATEGY for module in modules]
    return {strategy.name: strategy for strategy in sorted(strategies, key=lambda one: one.traits.place)}


class _Strategies(Mapping[str, "Strategy"]):
    """Every strategy by its name, simplest first; read from the folder when it is first looked at."""

    def __getitem__(self, name: str) -> "Strategy":
        return _found(tuple(kinds.__path__))[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_found(tuple(kinds.__path__)))

    def __len__(self) -> int:
        return len(_found(tuple(kinds.__path__)))


STRATEGIES: "Mapping[str, Strategy]" = _Strategies()


def find_strategy(name: str) -> "Strategy":
    """The strategy called `name`; UsageError for an unknown one, NotBuiltError for one that is still to come."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    if name in NOT_BUILT:
        raise NotBuiltError(f"--strategy {name}")
    hint = did_you_mean(name, STRATEGIES)
    raise UsageError(f"--strategy {name!r} is unknown: use auto, {', '.join(STRATEGIES)}.{hint}")


def traits_of(name: str) -> Traits:
    """The traits of the strategy called `name`, with `find_strategy`'s errors."""
    return find_strategy(name).traits


def known_traits(name: str | None) -> Traits | None:
    """The same where the name comes from a record or a file, which another version or another tool may have written;
    None for a name that is none of this version's strategies of training."""
    found = STRATEGIES.get(name or "")
    return None if found is None else found.traits


def all_traits() -> tuple[Traits, ...]:
    """Of every strategy, simplest first."""
    return tuple(strategy.traits for strategy in STRATEGIES.values())


def unsharded(world_size: int) -> Traits:
    """The simplest strategy on so many devices: each holds everything."""
    return next(traits for traits in all_traits() if not traits.stage and traits.one_device == (world_size == 1))


def strategy_by(engine: Engine, *, stage: int = 3, replicates: bool = False) -> Traits:
    """The simplest strategy that an engine runs so: how other tools' configurations name one.

    KeyError where there is none.
    """
    for traits in all_traits():
        if (traits.engine, traits.stage, traits.replicates) == (engine, stage, replicates):
            return traits
    raise KeyError(f"no strategy of {engine} at stage {stage}")


def replicating() -> tuple[Traits, ...]:
    """Strategies with groups of ranks that hold one whole sharded copy each."""
    return tuple(traits for traits in all_traits() if traits.replicates)


def meant_by(setting: str) -> tuple[str, ...]:
    """Names of the strategies that a `--set` key says something about; none: all."""
    return tuple(traits.name for traits in all_traits() if setting in traits.settings)
