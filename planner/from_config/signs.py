"""By what a file is known: keys that only its kind has."""

from collections.abc import Callable, Mapping

Content = Mapping[str, object]
Signs = Callable[[Content], tuple[str, ...]]
"""The keys of a file that say its kind; none where it is of another."""


def keys(*names: str) -> Signs:
    """Any of these stands there, whatever its value."""
    return lambda content: tuple(name for name in names if name in content)


def given(*names: str) -> Signs:
    """Any of these stands there with a value that is not empty or off."""
    return lambda content: tuple(name for name in names if content.get(name) not in (None, "", False))


def together(*names: str) -> Signs:
    """All of these stand there."""
    return lambda content: names if all(name in content for name in names) else ()


def several(*names: str, alone: tuple[str, ...] = ()) -> Signs:
    """Two of `names`, which others have as well, or one of `alone`."""

    def found(content: Content) -> tuple[str, ...]:
        there = tuple(name for name in (*alone, *names) if name in content)
        return there if len(there) > 1 or any(name in alone for name in there) else ()

    return found


def first(*ways: Signs) -> Signs:
    """Of the first way that finds any."""
    return lambda content: next((found for way in ways if (found := way(content))), ())


def table_of(content: Content, key: str) -> Content:
    """The table that stands under `key`; an empty one for anything else."""
    value = content.get(key)
    return value if isinstance(value, Mapping) else {}
