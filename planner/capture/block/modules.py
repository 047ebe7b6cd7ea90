"""The modules of a block's models, of which there may be several, and which may come and go."""

import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from gpu_plan.planner.trace.recording.modules import ModuleTracker


class BlockModules(ModuleTracker):
    """Follows every model that is called; index 0 stands for what runs outside of any."""

    def __init__(self) -> None:
        self._roots: list[tuple[int, int, str, bool]] = []
        """First and last index, class name, and whether it has parameters, by order of first call."""
        self._deaths: list[Any] = []
        super().__init__(nn.Module())

    def follow(self, model: nn.Module) -> bool:
        """Follows `model` from now on; False where it is followed already, by itself or inside another."""
        if id(model) in self._index:
            return False
        first = len(self._names)
        self._add(model, "", 0)
        has_parameters = next(model.parameters(), None) is not None
        self._roots.append((first, len(self._names), type(model).__name__, has_parameters))
        return True

    def _add(self, module: nn.Module, name: str, parent: int) -> None:
        if id(module) not in self._index:
            # A dead module's id is given out again, and a reference kept here would keep its memory alive.
            self._deaths.append(weakref.ref(module, self._forgetter(id(module))))
        super()._add(module, name, parent)

    def _forgetter(self, key: int) -> Callable[[Any], None]:
        def forget(_: Any) -> None:
            self._index.pop(key, None)

        return forget

    def names(self) -> list[str]:
        """Qualified names by index; class names stand before those of the second model and later ones."""
        names = [""] * len(self._names)
        models = 0
        for first, last, kind, has_parameters in self._roots:
            models += has_parameters
            prefix = "" if has_parameters and models == 1 else kind
            for index in range(first, last):
                own = self._names[index]
                names[index] = f"{prefix}.{own}" if prefix and own else prefix or own or kind
        return names
