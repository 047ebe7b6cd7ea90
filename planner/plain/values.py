"""`dataclass` as the standard library has it, in a third of its time: a command makes hundreds of classes at its start.

Python's own writes and compiles up to seven methods for every class (dataclasses.py: _process_class, _create_fn). Here
those that are alike for all classes are shared, and `__init__` is written when the first object is made. Fields, slots
and order of arguments are the standard library's doing, which `fields`, `replace` and `asdict` go by. From Python 3.13
on, which compiles a class's methods together, it is the standard library's as it stands.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 13):
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass`."""
        if cls is not None:
            return _made(cls, options)
        return lambda cls: _made(cls, options)


__all__ = ["dataclass"]

_SHARED = frozenset({"frozen", "slots", "kw_only", "eq", "weakref_slot"})
"""Options of classes whose methods are shared."""
_MISSING = dataclasses.MISSING


def _made(cls: type, options: dict[str, bool]) -> type:
    frozen, compares = options.get("frozen", False), options.get("eq", True)
    if not _is_plain(cls, options):
        return dataclasses.dataclass(cls, **options)
    own = cls.__dict__.keys() & {"__init__", "__eq__", "__hash__", "__repr__", "__getstate__", "__setstate__"}
    with _changing(_bases(cls)):
        here = {name: value for name, value in options.items() if name not in ("frozen", "eq")}
        made: type = dataclasses.dataclass(init=False, repr=False, eq=False, **here)(cls)
    added: dict[str, Any] = {"__init__": _first_init(made, frozen), "__repr__": _shown}
    if compares and "__eq__" not in own:
        added |= _compared(made, frozen)
    if frozen:
        added |= {"__setattr__": _keep, "__delattr__": _keep_all}
        if options.get("slots", False):
            added |= {"__getstate__": _state, "__setstate__": _restored}
    for name, value in added.items():
        if name not in own:
            setattr(made, name, value)
    said: Any = made.__dataclass_params__  # type: ignore[attr-defined]
    said.init, said.repr, said.eq, said.frozen = True, True, compares, frozen
    return made


def _bases(cls: type) -> list[Any]:
    """What the classes say of themselves that it derives from."""
    return [
        base.__dict__["__dataclass_params__"] for base in cls.__mro__[1:] if "__dataclass_params__" in base.__dict__
    ]


@contextmanager
def _changing(bases: list[Any]) -> Iterator[None]:
    """They count as classes that may change: the standard library makes none that is frozen for us."""
    frozen = [base.frozen for base in bases]
    for base in bases:
        base.frozen = False
    try:
        yield
    finally:
        for base, was in zip(bases, frozen, strict=True):
            base.frozen = was


def _is_plain(cls: type, options: dict[str, bool]) -> bool:
    """Whether nothing of it asks for what is not shared: other options, arguments that are no fields; or is an error,
    which the standard library tells."""
    return (
        options.keys() <= _SHARED
        and not any(map(_is_argument_alone, getattr(cls, "__annotations__", {}).values()))
        and not cls.__dict__.keys() & {"__setattr__", "__delattr__"}
        and all(base.frozen == options.get("frozen", False) for base in _bases(cls))
    )


def _is_argument_alone(kind: object) -> bool:
    """As dataclasses.py: _is_initvar, and of names in quotes whatever may mean it."""
    return "InitVar" in kind if isinstance(kind, str) else dataclasses.InitVar in (kind, type(kind))


# -- arguments ------------------------------------------------------------------------------------------------


def _first_init(made: type, frozen: bool) -> Callable[..., None]:
    """Writes the real one when it is called first."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        written = _written_init(made, frozen)
        made.__init__ = written  # type: ignore[misc]
        written(self, *args, **kwargs)

    __init__.__qualname__ = f"{made.__qualname__}.__init__"
    return __init__


def _written_init(made: type, frozen: bool) -> Callable[..., None]:
    """dataclasses.py: _init_fn. What is compiled is alike for classes of as many fields; names are put in."""
    slots = made.__dict__.get("__slots__") is not None
    known: dict[str, Any] = {"_object": object, "_missing": _MISSING}
    names: dict[Any, str] = {}
    lines: list[str] = []
    places: list[str] = []
    named: list[str] = []
    defaults: list[Any] = []
    named_defaults: dict[str, Any] = {}
    # Arguments by name and what is made anew last: of the fewer orders the fewer are compiled.
    fields = sorted(dataclasses.fields(made), key=lambda one: one.kw_only and 1 + (one.default_factory is not _MISSING))
    for number, field in enumerate(fields):
        value = f"a{number}"
        if field.default_factory is not _MISSING:
            known[f"_make{number}"] = field.default_factory
            value = f"_make{number}() if {value} is _missing else {value}" if field.init else f"_make{number}()"
        elif not field.init and (field.default is _MISSING or not slots):
            continue
        elif not field.init:
            known[f"_default{number}"], value = field.default, f"_default{number}"
        if field.init:
            names[f"a{number}"] = field.name
            (named if field.kw_only else places).append(f"a{number}")
            default = field.default if field.default_factory is _MISSING else _MISSING
            if field.default_factory is not _MISSING or default is not _MISSING:
                if field.kw_only:
                    named_defaults[field.name] = default
                else:
                    defaults.append(default)
        slot = getattr(made, field.name, None)
        if frozen and isinstance(slot, MemberDescriptorType):
            known[f"_set{number}"] = slot.__set__
            lines.append(f"_set{number}(_self, {value})")  # in half the time of object.__setattr__, which looks it up
        else:
            names[f"n{number}"] = field.name
            lines.append(
                f"_object.__setattr__(_self, 'n{number}', {value})" if frozen else f"_self.n{number} = {value}"
            )
    if hasattr(made, "__post_init__"):
        lines.append("_self.__post_init__()")
    arguments = ", ".join(["_self", *places, *(["*", *named] if named else [])])
    code = _named(_compiled(f"def __init__({arguments}):\n    " + "\n    ".join(lines or ["pass"])), names)
    written: Any = FunctionType(code, known, "__init__", tuple(defaults) or None)
    written.__kwdefaults__ = named_defaults or None
    written.__qualname__ = f"{made.__qualname__}.__init__"
    written.__module__ = made.__module__
    return written  # type: ignore[no-any-return]


@cache
def _compiled(text: str) -> CodeType:
    """Of the one function that is defined there."""
    module = compile(text, "<arguments>", "exec")
    return next(one for one in module.co_consts if isinstance(one, CodeType))


def _named(code: CodeType, names: dict[Any, str]) -> CodeType:
    """The same with other names for arguments, attributes and what is called by a name."""
    return code.replace(
        co_varnames=tuple(names.get(name, name) for name in code.co_varnames),
        co_names=tuple(names.get(name, name) for name in code.co_names),
        co_consts=tuple(names.get(one, one) if isinstance(one, str) else one for one in code.co_consts),
    )


# -- what is alike for all ------------------------------------------------------------------------------------


def _compared(made: type, frozen: bool) -> dict[str, Any]:
    """Equality by all fields that are compared, and the hash of what is frozen."""
    values = _reader([field.name for field in dataclasses.fields(made) if field.compare])

    def __eq__(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    if not frozen:
        return {"__eq__": __eq__, "__hash__": None}
    hashed = [f.name for f in dataclasses.fields(made) if (f.compare if f.hash is None else f.hash)]
    return {"__eq__": __eq__, "__hash__": _hash_by(_reader(hashed))}


def _hash_by(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Their values of an object, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


@recursive_repr()
def _shown(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(values)})"


def _keep(self: Any, name: str, value: object) -> None:
    if _is_kept(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _keep_all(self: Any, name: str) -> None:
    if _is_kept(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_kept(self: Any, name: str) -> bool:
    """Of a frozen class every name, of what derives from one and is no such class its fields."""
    return "__dataclass_params__" in type(self).__dict__ or name in type(self).__dataclass_fields__


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restored(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=False):
        object.__setattr__(self, field.name, value)
