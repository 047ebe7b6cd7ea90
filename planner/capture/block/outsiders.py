"""Models and optimizers that were made before the block and are used inside it: lent to meta, and given back."""

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from gpu_plan.planner.capture.answers.placement import META, parameter_to_meta, remember
from gpu_plan.planner.trace.inputs.known import KnownValues


class Outsiders:
    """Whatever of a model still has values is replaced by its like on meta until `give_back`."""

    def __init__(self, known: KnownValues) -> None:
        self._known = known
        self._twins: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}
        self._entries: list[tuple[dict[str, Any], str, Any]] = []
        self._groups: list[tuple[dict[str, Any], list[Any]]] = []
        self._states: list[tuple[Any, dict[Any, Any]]] = []

    def bring_in(self, model: nn.Module) -> None:
        """Puts parameters and buffers of `model` on meta; shared ones stay shared."""
        for module in model.modules():
            for name, parameter in list(module._parameters.items()):
                if parameter is not None and parameter.device.type != "meta":
                    self._replace(module._parameters, name, self._twin(parameter))
            for name, buffer in list(module._buffers.items()):
                if buffer is not None and buffer.device.type != "meta":
                    with _disable_current_modes():
                        moved = torch.empty_like(buffer, device=META)
                    remember(self._known, moved, buffer)
                    self._replace(module._buffers, name, moved)

    def _replace(self, home: dict[str, Any], name: str, value: Any) -> None:
        self._entries.append((home, name, home[name]))
        home[name] = value

    def _twin(self, parameter: nn.Parameter) -> nn.Parameter:
        if id(parameter) not in self._twins:
            self._twins[id(parameter)] = (parameter, parameter_to_meta(parameter))
        return self._twins[id(parameter)][1]

    def bring_in_optimizer(self, optimizer: Any) -> None:
        """Lets an optimizer of brought-in parameters step their likes; its state starts anew."""
        lent = False
        for group in optimizer.param_groups:
            wanted = [self._twins[id(p)][1] if id(p) in self._twins else p for p in group["params"]]
            if any(new is not old for new, old in zip(wanted, group["params"], strict=True)):
                self._groups.append((group, list(group["params"])))
                group["params"], lent = wanted, True
        if lent:
            self._states.append((optimizer, dict(optimizer.state)))
            optimizer.state.clear()

    def give_back(self) -> None:
        """Everything as it was before the block."""
        for home, name, value in reversed(self._entries):
            home[name] = value
        for group, parameters in self._groups:
            group["params"] = parameters
        for optimizer, state in self._states:
            optimizer.state.clear()
            optimizer.state.update(state)
