"""The strategies that a search can replay, by name."""

from collections.abc import Iterator, Mapping
from typing import cast

from gpu_plan.planner.strategy.base import Strategy
from gpu_plan.planner.strategy.known import strategies, traits_of


class _Strategies(Mapping[str, Strategy]):
    """Every strategy by its name, simplest first: what stands in the folder when it is looked at."""

    def __getitem__(self, name: str) -> Strategy:
        return cast("Strategy", strategies()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(strategies())

    def __len__(self) -> int:
        return len(strategies())


STRATEGIES: Mapping[str, Strategy] = _Strategies()


def find_strategy(name: str) -> Strategy:
    """The strategy called `name`; UsageError for an unknown one, NotBuiltError for one that is still to come."""
    return STRATEGIES[traits_of(name).name]
