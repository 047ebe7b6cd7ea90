"""Runs a callback when a module has been imported, now or later, without importing it."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

Callback = Callable[[Any], None]


class _Finder(importlib.abc.MetaPathFinder):
    """Stands first in sys.meta_path and lets the others find what it waits for."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}
        self._asking = False

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if self._asking or name not in self.waiting:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking = False
        if spec is None or spec.loader is None:
            return spec
        run, callbacks = spec.loader.exec_module, self.waiting.pop(name)

        def exec_module(module: Any) -> None:
            run(module)
            for callback in callbacks:
                callback(module)

        setattr(spec.loader, "exec_module", exec_module)  # noqa: B010 - a method of this one loader
        return spec


_FINDER = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Calls `callback(module)` once `name` is there; at once where it is already."""
    if name in sys.modules:
        callback(sys.modules[name])
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.waiting.setdefault(name, []).append(callback)
