"""Values that are names in a registry: a plain string for whatever writes it, its entry's traits for whatever asks."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Self, TypeVar

from gpu_plan.planner.errors import InputError


class Named(str):
    """The name of an entry of a registry, which subclasses name; ValueError for any other text."""

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        if name not in cls.names():
            raise ValueError(f"{name!r} is not a valid {cls.__name__}")
        return super().__new__(cls, name)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every name, in the order in which lists show them."""
        raise NotImplementedError


T = TypeVar("T")
K = TypeVar("K", bound=StrEnum | Named)


def known_names(kind: type[K]) -> tuple[str, ...]:
    """What an option of this kind can be given."""
    return kind.names() if issubclass(kind, Named) else tuple(map(str, kind))


def listed(names: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)


def with_words(names: Iterable[tuple[str, str]]) -> str:
    """`a (what it is), b`: names with their few words, which may be empty."""
    return ", ".join(f"{name} ({words})" if words else name for name, words in names)


def stored(known: Mapping[str, T], name: object, what: str, default: str) -> T:
    """The entry that a document names, or the default's where it names none.

    InputError for a name of another version: what is not known cannot be launched or weighed by guessing.
    """
    found = known.get(default if name is None else str(name))
    if found is None:
        raise InputError(f"the plan's {what} {str(name)[:40]!r} is not known to this version: make the plan again")
    return found
