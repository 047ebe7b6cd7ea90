"""Parameter-efficient training: one entry for each way, with all that there is to know of it.

Named tuples, because `plan --help` reads the names and must start at once.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gpu_plan.planner.workload.named import Named, stored, with_words


class AdapterTraits(NamedTuple):
    """What is trained instead of the model itself."""

    name: str
    """Value of `--peft`."""
    explored: int
    """Where the explorer's key stops at it: ascending."""
    help: str = ""
    """A few words that `--help` puts behind the name."""
    base: str = ""
    """How the frozen base is stored unless told otherwise, a word of `--quantize`; empty: as its config says. A base
    that is quantised while it is loaded goes to its device at once, and peft keeps what is not quantised in fp32."""
    packages: tuple[str, ...] = ()
    """Distributions that it needs; none where all parameters are trained."""

    @property
    def adapts(self) -> bool:
        """Whether adapters are trained, and the model around them is frozen."""
        return bool(self.packages)

    @property
    def quantises(self) -> bool:
        """Whether the base is packed into fewer bits while it is loaded: its elements are not the model's then."""
        return bool(self.base)


ADAPTERS: Mapping[str, AdapterTraits] = {
    traits.name: traits
    for traits in (
        AdapterTraits(name="none", explored=10),
        AdapterTraits(name="lora", explored=20, packages=("peft",)),
        AdapterTraits(
            name="qlora",
            explored=30,
            help="bitsandbytes NF4 base",
            base="nf4",
            packages=("peft", "bitsandbytes"),
        ),
    )
}
"""By name, in the order in which lists show them."""


class Peft(Named):
    """A value of `--peft`."""

    __slots__ = ()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(ADAPTERS)

    @property
    def traits(self) -> AdapterTraits:
        return ADAPTERS[self]

    @property
    def adapts(self) -> bool:
        """Whether adapters are trained, and the model around them is frozen."""
        return ADAPTERS[self].adapts

    @property
    def quantises(self) -> bool:
        """Whether the base is packed into fewer bits while it is loaded (QLoRA)."""
        return ADAPTERS[self].quantises


NO_ADAPTERS = Peft("none")


def adapters_on(*, quantised: bool) -> Peft:
    """LoRA on a base that is quantised while it is loaded, or on one that is not."""
    return Peft(next(t.name for t in ADAPTERS.values() if t.adapts and t.quantises == quantised))


def adapter_options() -> str:
    """The options that train adapters: `--peft a or --peft b`."""
    return " or ".join(f"--peft {traits.name}" for traits in ADAPTERS.values() if traits.adapts)


def stored_adapters(name: object) -> AdapterTraits:
    """Of the adapters that a document names, none where it says nothing; InputError for a kind unknown here."""
    return stored(ADAPTERS, name, "adapters", NO_ADAPTERS)


def adapter_help() -> str:
    """Every name with its few words, for `--help`."""
    return with_words((traits.name, traits.help) for traits in ADAPTERS.values())


def explored_adapters() -> tuple[str, ...]:
    """Names that the explorer's key goes through, in its order."""
    return tuple(traits.name for traits in sorted(ADAPTERS.values(), key=lambda traits: traits.explored))
