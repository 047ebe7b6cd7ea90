"""`dataclass` as the standard library has it, in a third of its time: a command makes hundreds of classes at its start.

Python's own writes and compiles up to seven methods for every class (dataclasses.py: _process_class, _create_fn). Here
those that are alike for all classes are shared, and `__init__` is written when the first object is made. Fields, slots
and order of arguments are the standard library's doing, which `fields`, `replace` and `asdict` go by. From Python 3.13
on, which compiles a class's methods together, it is the standard library's as it stands.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
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

_SHARED = frozenset({"frozen", "slots", "kw_only"})
"""Options of classes whose methods are shared."""
_MISSING = dataclasses.MISSING


def _made(cls: type, options: dict[str, bool]) -> type:
    frozen = options.get("frozen", False)
    if not _is_plain(cls, options):
        return dataclasses.dataclass(cls, **options)
    own = cls.__dict__.keys() & {"__init__", "__eq__", "__hash__", "__repr__", "__getstate__", "__setstate__"}
    with _changing(_bases(cls)):
        made: type = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=options.get("slots", False), kw_only=options.get("kw_only", False)
        )(cls)
    added: dict[str, Any] = {"__init__": _first_init(made, frozen), "__repr__": _shown}
    if "__eq__" not in own:
        added |= _compared(made, frozen)
    if frozen:
        added |= {"__setattr__": _keep, "__delattr__": _keep_all}
        if options.get("slots", False):
            added |= {"__getstate__": _state, "__setstate__": _restored}
    for name, value in added.items():
        if name not in own:
            setattr(made, name, value)
    said: Any = made.__dataclass_params__  # type: ignore[attr-defined]
    said.init, said.repr, said.eq, said.frozen = True, True, True, frozen
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
    """Whether nothing of it asks for what is not shared: other options, values that are no fields, fields that are no
    arguments; or is an error, which the standard library tells."""
    kinds = inspect.get_annotations(cls).values()
    fields = (value for value in cls.__dict__.values() if isinstance(value, dataclasses.Field))
    return (
        options.keys() <= _SHARED
        and not any("ClassVar" in str(kind) or "InitVar" in str(kind) for kind in kinds)
        and all(field.init for field in fields)
        and not cls.__dict__.keys() & {"__setattr__", "__delattr__"}
        and all(base.frozen == options.get("frozen", False) for base in _bases(cls))
    )


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
    """dataclasses.py: _init_fn."""
    known: dict[str, Any] = {"_object": object, "_missing": _MISSING}
    places: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(made):
        name, value, argument = field.name, field.name, field.name
        if field.default is not _MISSING:
            known[f"_default_{name}"] = field.default
            argument = f"{name}=_default_{name}"
        elif field.default_factory is not _MISSING:
            known[f"_make_{name}"] = field.default_factory
            argument, value = f"{name}=_missing", f"_make_{name}() if {name} is _missing else {name}"
        (named if field.kw_only else places).append(argument)
        slot = getattr(made, name, None)
        if frozen and isinstance(slot, MemberDescriptorType):
            known[f"_set_{name}"] = slot.__set__
            body.append(f"_set_{name}(_self, {value})")  # in half the time of object.__setattr__, which looks it up
        else:
            body.append(f"_object.__setattr__(_self, {name!r}, {value})" if frozen else f"_self.{name} = {value}")
    if hasattr(made, "__post_init__"):
        body.append("_self.__post_init__()")
    arguments = ", ".join(["_self", *places, *(["*", *named] if named else [])])
    lines = "".join(f"\n    {line}" for line in body or ["pass"])
    exec(f"def __init__({arguments}):{lines}", known)
    written: Any = known["__init__"]
    written.__qualname__ = f"{made.__qualname__}.__init__"
    written.__module__ = made.__module__
    return written  # type: ignore[no-any-return]


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
