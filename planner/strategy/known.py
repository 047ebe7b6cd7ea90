"""Which strategies there are: found by the folder of their files, read as traits. Imports no numpy and no replay."""

import pkgutil
from functools import cache
from importlib import import_module

from gpu_plan.planner.errors import NotBuiltError, UsageError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.strategy import kinds
from gpu_plan.planner.strategy.traits import Engine, HasTraits, Traits

NOT_BUILT: tuple[str, ...] = ()
"""Strategies of the interface that later versions bring."""


def strategies() -> dict[str, HasTraits]:
    """Every strategy by its name, simplest first; the folder is looked at once."""
    return _found(tuple(kinds.__path__))


@cache
def _found(folders: tuple[str, ...]) -> dict[str, HasTraits]:
    found = pkgutil.walk_packages(folders, f"{kinds.__name__}.")
    modules = (import_module(module.name) for module in found if not module.ispkg)
    made: list[HasTraits] = [module.STRATEGY for module in modules]
    return {strategy.name: strategy for strategy in sorted(made, key=lambda one: one.traits.place)}


def all_traits() -> tuple[Traits, ...]:
    """Of every strategy, simplest first."""
    return tuple(strategy.traits for strategy in strategies().values())


def traits_of(name: str) -> Traits:
    """Of the strategy called `name`; UsageError for an unknown one, NotBuiltError for one that is still to come."""
    known = strategies()
    if name in known:
        return known[name].traits
    if name in NOT_BUILT:
        raise NotBuiltError(f"--strategy {name}")
    of_engine = [strategy.name for strategy in known.values() if str(strategy.traits.engine).lower().startswith(name)]
    hint = f" Did you mean {' or '.join(of_engine)}?" if of_engine else did_you_mean(name, known)
    raise UsageError(f"--strategy {name!r} is unknown: use auto, {', '.join(known)}.{hint}")


def known_traits(name: str | None) -> Traits | None:
    """The same where a name comes from a record or a file, which another version may have written, and where inference
    has ways of its own to spread a model; None for a name that is no strategy of training in this version."""
    found = strategies().get(name or "")
    return None if found is None else found.traits


def unsharded(world_size: int) -> Traits:
    """The simplest strategy on so many devices: each holds everything."""
    return next(traits for traits in all_traits() if not traits.stage and traits.one_device == (world_size == 1))


def strategy_by(engine: Engine, *, stage: int = 3, replicates: bool = False) -> Traits:
    """The simplest strategy that an engine runs so: what other tools' configurations mean.

    KeyError where there is none.
    """
    for traits in all_traits():
        if (traits.engine, traits.stage, traits.replicates) == (engine, stage, replicates):
            return traits
    raise KeyError(f"no strategy of {engine} at stage {stage}")


def replicating() -> tuple[Traits, ...]:
    """Strategies with groups of ranks that hold one whole sharded copy each."""
    return tuple(traits for traits in all_traits() if traits.replicates)


def tensor_parallel() -> tuple[Traits, ...]:
    """Strategies in which several ranks compute one copy of the model together."""
    return tuple(traits for traits in all_traits() if traits.tensor_parallel)


def expert_parallel() -> tuple[Traits, ...]:
    """Strategies in which ranks hold whole experts each, those that do so always before those that may."""
    able = [traits for traits in all_traits() if traits.expert_parallel]
    return tuple(sorted(able, key=lambda traits: traits.expert_parallel != "must"))


def context_parallel() -> tuple[Traits, ...]:
    """Strategies under which ranks can share the tokens of a sample."""
    return tuple(traits for traits in all_traits() if traits.context_parallel)


def pipelined() -> tuple[Traits, ...]:
    """Strategies in which ranks hold stages of one copy of the model."""
    return tuple(traits for traits in all_traits() if traits.pipeline_parallel)


def with_degree(title: str, mark: str, degree: int) -> str:
    """`FSDP2 × TP 4`, `TP 2 × pipeline`, `tensor parallel TP 8`: a mark that a title has takes the number."""
    words = title.split(" ")
    if mark not in words:
        return f"{title} {mark} {degree}"
    place = words.index(mark)
    return " ".join([*words[: place + 1], str(degree), *words[place + 1 :]])


def meant_by(setting: str) -> tuple[str, ...]:
    """Names of the strategies that a `--set` key says something about; none: all."""
    return tuple(traits.name for traits in all_traits() if setting in traits.settings)
