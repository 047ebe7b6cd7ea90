"""A name of a package that is imported when the name is first used."""

import importlib
import sys
import typing
from typing import Any

from gpu_plan.planner.model.build.lean.paused import paused


class Later:
    """Stands for `name` of `module` in a namespace that imported it: called, subclassed, asked for an attribute or
    written out, it is what it stands for. That an object is an instance of it is no without importing anything, as
    long as the module is not there: nobody can have made one.
    """

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _now(self) -> Any:
        with paused():
            home = importlib.import_module(self._module)
            if hasattr(home, self._name):
                return getattr(home, self._name)
            return importlib.import_module(f"{self._module}.{self._name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._now()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__name__", "__qualname__", "__mro__"):
            raise AttributeError(name)
        return getattr(self._now(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return self._module in sys.modules and isinstance(instance, self._now())

    def __subclasscheck__(self, kind: type) -> bool:
        return self._module in sys.modules and issubclass(kind, self._now())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._now(),)

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007  # of an object that is no class there is no other way

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def __contains__(self, item: object) -> bool:
        return item in self._now()

    def __getitem__(self, key: Any) -> Any:
        return self._now()[key]

    def __iter__(self) -> Any:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Later) and type(other) is Later:
            return (self._module, self._name) == (other._module, other._name)
        return bool(self._now() == other)

    def __hash__(self) -> int:
        return hash((self._module, self._name))

    def __repr__(self) -> str:
        return f"{self._module}.{self._name}"


class Names:
    """What `from module import ...` takes its names from."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Later:
        if name.startswith("__"):
            raise AttributeError(name)
        return Later(self._module, name)
