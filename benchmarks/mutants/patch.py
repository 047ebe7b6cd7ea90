"""A fault put into modules that are loaded already: the code of its functions is exchanged, wherever they are held."""

import functools
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

_PLAIN = (int, float, str, bytes, tuple, frozenset, dict, type(None))
_PACKAGE = "gpu_plan"


def module_of(path: str) -> str:
    """Name under which a file of the project is imported."""
    return f"{_PACKAGE}." + path.removeprefix("src/gpu_plan/").removesuffix(".py").removesuffix("/__init__").replace(
        "/", "."
    )


def planted(path: str, text: str) -> bool:
    """Whether the loaded module now does what `text` says; False where it holds what cannot be exchanged.

    Functions, methods and properties get the new code in place, so that whoever imported them has it; constants are set
    in every module that took them by name. What was remembered before (functools.cache) is forgotten.
    """
    name = module_of(path)
    module = importlib.import_module(name)  # strategies load theirs when they are asked
    fresh: dict[str, Any] = {"__name__": name, "__file__": module.__file__, "__package__": module.__package__}
    exec(compile(text, str(module.__file__), "exec"), fresh)
    changed = 0
    for key, new in fresh.items():
        old = module.__dict__.get(key)
        if key.startswith("__") or getattr(new, "__module__", name) != name:
            continue
        if isinstance(new, type):
            changed += _class(old, new)
        elif _function(new) is not None:
            changed += _exchanged(old, new)
        elif isinstance(new, _PLAIN) and _differs(old, new):
            changed += _set_everywhere(key, old, new)
    for function in _remembering():
        function.cache_clear()
    return changed > 0


def _class(old: Any, new: type) -> int:
    if not isinstance(old, type):
        return 0
    changed = 0
    for key, value in vars(new).items():
        before = vars(old).get(key)
        if _function(value) is not None:
            changed += _exchanged(before, value)
        elif isinstance(value, property) and isinstance(before, property):
            changed += _exchanged(before.fget, value.fget)
    return changed


def _exchanged(old: Any, new: Any) -> int:
    ours, theirs = _function(old), _function(new)
    if ours is None or theirs is None or len(ours.__code__.co_freevars) != len(theirs.__code__.co_freevars):
        return 0
    same = _alike(ours.__code__, theirs.__code__) and ours.__defaults__ == theirs.__defaults__
    if same and ours.__kwdefaults__ == theirs.__kwdefaults__:
        return 0
    ours.__code__, ours.__defaults__, ours.__kwdefaults__ = theirs.__code__, theirs.__defaults__, theirs.__kwdefaults__
    return 1


def _function(value: Any) -> types.FunctionType | None:
    """The plain function behind what decorators made of one."""
    if isinstance(value, functools.cached_property):
        value = value.func
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value if isinstance(value, types.FunctionType) else None


def _alike(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two codes do the same; lines may have moved."""
    if (one.co_code, one.co_names, one.co_varnames) != (other.co_code, other.co_names, other.co_varnames):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=True)
    return all(
        _alike(a, b) if isinstance(a, types.CodeType) and isinstance(b, types.CodeType) else _equal(a, b)
        for a, b in pairs
    )


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _differs(old: Any, new: Any) -> bool:
    try:
        return not _equal(old, new)
    except (TypeError, ValueError):
        return False


def _set_everywhere(key: str, old: Any, new: Any) -> int:
    """In every module of the project, and in the defaults of its functions, where the name stands for the old value."""
    for module in _modules():
        if key in module.__dict__ and _equal(module.__dict__[key], old):
            setattr(module, key, new)
    return 1


def _modules() -> Iterator[types.ModuleType]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in (_PACKAGE, "tests") and module is not None:
            yield module


def _remembering() -> Iterator[Any]:
    for module in _modules():
        for value in list(module.__dict__.values()):
            if hasattr(value, "cache_clear") and hasattr(value, "__wrapped__"):
                yield value
