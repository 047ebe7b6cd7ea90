"""What several tests of a worker ask for is made once."""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def once(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keeps the `most` results that were asked for last, by how their arguments are written: cases hold dicts.

    For functions whose results nobody changes, such as a trace or a reference.
    """

    def made(function: Callable[P, T]) -> Callable[P, T]:
        kept: OrderedDict[str, T] = OrderedDict()

        @wraps(function)
        def ask(*arguments: P.args, **named: P.kwargs) -> T:
            key = repr((arguments, sorted(named.items())))
            if key not in kept:
                kept[key] = function(*arguments, **named)
            kept.move_to_end(key)
            while len(kept) > most:
                kept.popitem(last=False)
            return kept[key]

        return ask

    return made
