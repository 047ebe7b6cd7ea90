"""Models that lie on the planned device though nothing in the step runs them: a forgotten copy, averaged weights."""

import contextlib
import copy
import functools
import gc
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import torch
from torch import nn

from gpu_plan.planner.capture.answers.placement import is_planned

_MARK = "_plan_placed"


def watch_placed(stack: contextlib.ExitStack, copied: Callable[[], None]) -> None:
    """Marks modules that are moved to the planned device, for the rest of the process.

    A deep copy of one carries the mark with it; `copied()` is called when a module with parameters is deep-copied.
    """
    to, cuda, deepcopy = nn.Module.to, nn.Module.cuda, copy.deepcopy

    @functools.wraps(to)
    def marked_to(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        target = kwargs.get("device", args[0] if args else None)
        if is_planned(target.device if isinstance(target, torch.Tensor) else target):
            _mark(module)
        return to(module, *args, **kwargs)

    @functools.wraps(cuda)
    def marked_cuda(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        _mark(module)
        return cuda(module, *args, **kwargs)

    @functools.wraps(deepcopy)
    def noted_copy(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, nn.Module) and next(value.parameters(), None) is not None:
            copied()
        return deepcopy(value, *args, **kwargs)

    stack.enter_context(mock.patch.object(nn.Module, "to", marked_to))
    stack.enter_context(mock.patch.object(nn.Module, "cuda", marked_cuda))
    stack.enter_context(mock.patch.object(copy, "deepcopy", noted_copy))


def _mark(module: nn.Module) -> None:
    for part in module.modules():
        part.__dict__[_MARK] = True


def bystanders(models: Iterable[nn.Module]) -> list[nn.Module]:
    """Outermost marked modules that share no parameter with `models`, in the order in which they were made."""
    known = {id(parameter) for model in models for parameter in model.parameters()}
    placed = [thing for thing in gc.get_objects() if isinstance(thing, nn.Module) and thing.__dict__.get(_MARK, False)]
    inner = {id(part) for module in placed for part in module.modules() if part is not module}
    found = []
    for module in placed:
        parameters = list(module.parameters())
        if id(module) not in inner and parameters and not any(id(parameter) in known for parameter in parameters):
            found.append(module)
            known |= {id(parameter) for parameter in parameters}
    return found
