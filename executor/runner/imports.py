"""Calls back when a module has been imported, now or later; imports nothing itself."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Hook = Callable[[ModuleType], None]


class PostImport:
    """A finder at the head of `sys.meta_path` that finds nothing itself, but sees a module's loading end."""

    def __init__(self, failed: Callable[[str, Exception], None]) -> None:
        self._hooks: dict[str, list[Hook]] = {}
        self._finding: set[str] = set()
        self._failed = failed

    def install(self) -> None:
        """Begins to watch imports."""
        sys.meta_path.insert(0, self)

    def when(self, name: str, hook: Hook) -> None:
        """Calls `hook(module)` once: now if `name` is imported already, else as soon as it is."""
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if module is not None and not getattr(spec, "_initializing", False):
            self._call(name, hook, module)
        else:
            self._hooks.setdefault(name, []).append(hook)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The spec that the other finders give, with an `exec_module` that calls the hooks afterwards."""
        if name not in self._hooks or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.discard(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The loader is the module's own again before its code runs: libraries look at `__loader__`.
            del loader.exec_module
            load(module)
            for hook in self._hooks.pop(name, ()):
                self._call(name, hook, module)

        loader.exec_module = exec_module
        return spec

    def _call(self, name: str, hook: Hook, module: ModuleType) -> None:
        try:
            hook(module)
        except Exception as error:
            self._failed(name, error)
