"""What torch's meta kernels ask of sizes, of numbers that are no symbols: without sympy.

torch/fx/experimental/symbolic_shapes.py: its functions give plain numbers back as they are; importing them takes a
quarter of a second for sympy.
"""

import operator
import sys
from collections.abc import Callable
from functools import cache, reduce
from typing import Any

from gpu_plan.planner.model.build.lean.names import Later, Names

NAME = "torch.fx.experimental.symbolic_shapes"
ASKING = ("torch", "torch._refs", "torch._decomp", "torch._meta_registrations", "torch._prims", "torch._prims_common")
"""torch's modules of meta kernels, which ask when they run; and what lies in them."""
_SYMPY = "torch.utils._sympy"


@cache
def asks_sizes(module: object) -> bool:
    """Whether a module is one of those, as the globals of its functions name it."""
    return ".".join(str(module).split(".")[:2]) in ASKING


def names_of(module: str) -> Names | None:
    """What they import from a module that brings sympy; None for any other, and where it is there already."""
    if module in sys.modules:
        return None
    if module == NAME:
        return _SIZES
    return Names(module) if module.startswith(_SYMPY) else None


class _PlainSizes(Names):
    """Names of symbolic_shapes: for plain numbers what its functions give, for all else the real ones."""

    def __getattr__(self, name: str) -> Any:
        real = super().__getattr__(name)
        plain = _FUNCTIONS.get(name)
        if plain is None:
            return real
        found = _for_plain(*plain, real)
        setattr(self, name, found)
        return found


def _for_plain(kind: str, plain: Callable[..., Any], real: Later) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **kwargs) if kwargs or not all(_is(kind, one) for one in args) else plain(*args)

    return called


def _is(kind: str, value: object) -> bool:
    if isinstance(value, (tuple, list)):  # torch.Size among them
        return all(_is(kind, one) for one in value)
    return type(value).__name__ == kind


def _itself(value: Any) -> Any:
    return value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _all(*given: bool) -> bool:
    return reduce(operator.and_, given)


def _any(*given: bool) -> bool:
    return reduce(operator.or_, given)


def _none(*_: Any) -> set[Any]:
    return set()


def _never(_: int) -> bool:
    return False


_FUNCTIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "free_unbacked_symbols": ("Tensor", _none),  # one whose sizes are symbols is a FakeTensor
    "expect_true": ("bool", _itself),
    "guard_int": ("int", _itself),
    "guard_or_false": ("bool", _itself),
    "guard_or_true": ("bool", _itself),
    "guard_size_oblivious": ("bool", _itself),
    "is_nested_int": ("int", _never),
    "statically_known_true": ("bool", _itself),
    "sym_and": ("bool", _all),
    "sym_eq": ("int", _same),
    "sym_or": ("bool", _any),
}
"""What they are given where nothing is a symbol, and what they then do."""
_SIZES = _PlainSizes(NAME)
