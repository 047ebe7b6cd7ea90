"""Local variables of a real function, replayed: what each name holds, and when rebinding it frees that.

Python makes the new value before it drops the old one, and loop variables outlive their turn: much of what an
optimizer's step takes beyond its state is that.
"""

from collections.abc import Sequence

from gpu_plan.planner.memory.stream.placing import Handle, Placer
from gpu_plan.planner.trace.events import Category


class Scratch:
    """The temporaries of one optimizer step; sizes in bytes."""

    def __init__(self, builder: Placer, iteration: int, label: str) -> None:
        self._builder = builder
        self._iteration = iteration
        self._label = label
        self._bound: dict[str, list[Handle]] = {}

    def bind(self, variable: str, sizes: int | Sequence[int], module: str = "") -> None:
        """Assigns new storage (a list of it) to a variable; the storage it held goes afterwards."""
        wanted = (sizes,) if isinstance(sizes, int) else sizes
        rows = [(self._label, module, size) for size in wanted if size]
        made = self._builder.alloc_in_step(self._iteration, rows, Category.TEMPORARY)
        self.drop(variable)
        self._bound[variable] = made

    def move(self, source: str, target: str) -> None:
        """`target = source; del source`."""
        held = self._bound.pop(source, [])
        self.drop(target)
        self._bound[target] = held

    def drop(self, *variables: str) -> None:
        """`del variable`; what is not bound is passed over."""
        for variable in variables:
            self._builder.free_in_step(self._iteration, self._bound.pop(variable, []))

    def close(self) -> None:
        """The function returns."""
        self.drop(*list(self._bound))
