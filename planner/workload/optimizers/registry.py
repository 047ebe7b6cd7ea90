"""The optimizers there are: every file of `kinds` with a `KINDS`, so that a new one is one new file."""

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from gpu_plan.planner.workload.named import Named, stored, with_words
from gpu_plan.planner.workload.optimizers import kinds
from gpu_plan.planner.workload.optimizers.traits import OptimizerTraits

DEFAULT_NAME = "adamw"
"""torch's AdamW as it chooses its own implementation."""
NOT_BUILT = ("adamw-fp8", "adamw-4bit")
"""Optimizers of the interface that later versions bring."""


@cache
def optimizers() -> Mapping[str, OptimizerTraits]:
    """Traits by name, in the order in which lists show them."""
    # Not pkgutil, which nothing else on the way to `--help` needs.
    files = {name.removesuffix(".py") for folder in kinds.__path__ for name in os.listdir(folder) if _is_kind(name)}
    found = [traits for name in files for traits in import_module(f"{kinds.__name__}.{name}").KINDS]
    return MappingProxyType({traits.name: traits for traits in sorted(found, key=lambda traits: traits.place)})


def _is_kind(name: str) -> bool:
    return name.endswith(".py") and not name.startswith("_")


class Optimizer(Named):
    """A value of `--optimizer`."""

    __slots__ = ()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(optimizers())

    @property
    def traits(self) -> OptimizerTraits:
        return optimizers()[self]


DEFAULT_OPTIMIZER = Optimizer(DEFAULT_NAME)


def stored_optimizer(name: object) -> OptimizerTraits:
    """Of the optimizer that a document names, the default's where it names none; InputError for one unknown here."""
    return stored(optimizers(), name, "optimizer", DEFAULT_NAME)


def by_word(word: str) -> OptimizerTraits | None:
    """What `optim` means in the files of transformers and of what builds on it; None for an optimizer unknown here."""
    return next(
        (traits for traits in optimizers().values() if word in filter(None, (traits.optim, *traits.optim_read))), None
    )


def by_deepspeed_type(kind: str, *, torch_adam: bool) -> OptimizerTraits | None:
    """What a `type` (in lower case) of DeepSpeed's optimizer table means; None for an optimizer unknown here."""
    named = ((traits, traits.deepspeed_torch if torch_adam else traits.deepspeed) for traits in optimizers().values())
    return next((traits for traits, types in named if kind in types), None)


def explored_optimizers() -> tuple[str, ...]:
    """Names that the explorer's key goes through, in its order."""
    offered = [traits for traits in optimizers().values() if traits.explored is not None]
    return tuple(traits.name for traits in sorted(offered, key=lambda traits: traits.explored or 0))


def optimizer_help() -> str:
    """Every name with its few words, for `--help`."""
    return with_words((traits.name, traits.help) for traits in optimizers().values())
