"""Which modules read weights that belong to others: a trait of the code, which DeepSpeed's hooks go by.

deepspeed/runtime/zero/parameter_offload.py: ZeROOrderedDict.__getitem__ takes a weight that is read in a forward pass
while it is partitioned for one of the module that runs (register_external_parameter).
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from gpu_plan.planner.trace.events import numberless
from gpu_plan.planner.trace.recording.modules import ModuleTracker

Seen = Callable[[nn.Module, nn.Parameter], None]


class _Watched(dict[str, Any]):
    """A module's own parameters; says which one is read."""

    __slots__ = ("_module", "_seen")

    def __init__(self, held: dict[str, Any], module: nn.Module, seen: Seen) -> None:
        super().__init__(held)
        self._module, self._seen = module, seen

    def __getitem__(self, key: str) -> Any:
        found = super().__getitem__(key)
        if found is not None:
            self._seen(self._module, found)
        return found


class Reads:
    """What modules that run read of others that do not."""

    def __init__(self, model: nn.Module, tracker: ModuleTracker) -> None:
        self._model, self._tracker = model, tracker
        self._found: dict[tuple[str, int], nn.Parameter] = {}

    def _note(self, module: nn.Module, parameter: nn.Parameter) -> None:
        reader = self._tracker.reader(module)
        if reader is not None:
            self._found[reader, id(parameter)] = parameter

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Within, reads of a module's own parameters by their names are noted."""
        before = [(module, module._parameters) for module in self._model.modules() if module._parameters]
        for module, held in before:
            module._parameters = _Watched(held, module, self._note)
        try:
            yield
        finally:
            for module, held in before:
                watched = dict(module._parameters)
                held.clear()
                held.update(watched)
                module._parameters = held

    def names(self) -> frozenset[str]:
        """Parameters as `ModuleLayout.read` has them; one whose reader does not hold it below itself is left out."""
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        found = set()
        for (reader, _), parameter in self._found.items():
            name = names.get(id(parameter))
            if name is not None and (not reader or name.startswith(f"{reader}.")):
                found.add(f"{numberless(name)} {len(reader.split('.')) if reader else 0}")
        return frozenset(found)
