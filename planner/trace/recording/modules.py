"""Knows which module is running, forward by hooks and backward by autograd's sequence numbers."""

import bisect
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module

from gpu_plan.planner.trace.events import Kind

_sequence_number = torch._C._autograd._get_sequence_nr
_current_node = torch._C._current_autograd_node

FORWARD, BACKWARD, RECOMPUTE = 0, 1, 2


class ModuleTracker:
    """Follows the module stack of one model through forward, recomputation and backward."""

    def __init__(self, model: nn.Module) -> None:
        self._index: dict[int, int] = {}
        self._names: list[str] = []
        self._parents: list[int] = []
        self._add(model, "", -1)
        self._stack: list[int] = [0]
        self._bounds: list[int] = [0]
        self._owners: list[int] = [0]
        self._backward_path: tuple[int, ...] = ()
        self._in_backward = False
        self._emit: Callable[[int, int], None] = lambda kind, subject: None
        self._handles: list[Any] = []
        self._quiet = False

    def _add(self, module: nn.Module, name: str, parent: int) -> None:
        if id(module) in self._index:
            return
        index = len(self._names)
        self._index[id(module)] = index
        self._names.append(name)
        self._parents.append(parent)
        for child_name, child in module.named_children():
            self._add(child, f"{name}.{child_name}" if name else child_name, index)

    def add(self, model: nn.Module, name: str) -> None:
        """Follows a further model, under `name`, from now on."""
        self._add(model, name, 0)

    def names(self) -> list[str]:
        """Qualified names by module index."""
        return list(self._names)

    def attach(self, emit: Callable[[int, int], None]) -> None:
        """Where events go: `emit(kind, module index)`."""
        self._emit = emit

    def __enter__(self) -> "ModuleTracker":
        self._bounds, self._owners = [_sequence_number()], [0]
        self._handles = [
            nn_module.register_module_forward_pre_hook(self._enter),
            nn_module.register_module_forward_hook(self._exit, always_call=True),
        ]
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles:
            handle.remove()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Within, modules run unseen: what is captured for a graph is not the step."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _enter(self, module: nn.Module, args: Any) -> None:
        index = self._index.get(id(module))
        if index is None or self._quiet:
            return
        if self._in_backward:
            # Recomputation starts inside the backward of the block it recomputes.
            self.locate()
        self._stack.append(index)
        self._own(index)
        self._emit(Kind.ENTER, index)

    def _exit(self, module: nn.Module, args: Any, output: Any) -> None:
        index = self._index.get(id(module))
        if index is None or self._quiet:
            return
        # Checkpointing stops recomputation early with an exception: inner modules may not have left.
        while len(self._stack) > 1:
            top = self._stack.pop()
            self._emit(Kind.EXIT, top)
            if top == index:
                break
        self._own(self._stack[-1])

    @contextlib.contextmanager
    def before_entry(self) -> Iterator[None]:
        """Within, new autograd nodes belong to the module around the one that was just entered: what a hook does to
        arguments before the module's own hooks see them."""
        self._own(self._stack[-2] if len(self._stack) > 1 else self._stack[-1])
        try:
            yield
        finally:
            self._own(self._stack[-1])

    def _own(self, index: int) -> None:
        """From the current sequence number on, new autograd nodes belong to module `index`."""
        number = _sequence_number()
        if self._bounds[-1] == number:
            self._owners[-1] = index
        else:
            self._bounds.append(number)
            self._owners.append(index)

    def reader(self, module: nn.Module) -> str | None:
        """The module that runs forward and reads a weight of `module`, which does not run; None for any other read."""
        idle = len(self._stack) < 2 or self._in_backward or self._quiet
        if idle or self._index.get(id(module)) in self._stack:
            return None
        return self._names[self._stack[-1]]

    def start_backward(self) -> None:
        self._own(0)
        self._in_backward = True
        self._backward_path = (0,)

    def end_backward(self) -> None:
        self._walk_to((0,))
        self._in_backward = False

    def _path(self, index: int) -> tuple[int, ...]:
        path = []
        while index >= 0:
            path.append(index)
            index = self._parents[index]
        return tuple(reversed(path))

    def _walk_to(self, path: tuple[int, ...]) -> None:
        """Emits the exits and entries that lead from the current backward path to `path`."""
        shared = 0
        for ours, theirs in zip(self._backward_path, path, strict=False):
            if ours != theirs:
                break
            shared += 1
        for index in reversed(self._backward_path[shared:]):
            self._emit(Kind.BACKWARD_EXIT, index)
        for index in path[shared:]:
            self._emit(Kind.BACKWARD_ENTER, index)
        self._backward_path = path

    def locate(self) -> tuple[int, int]:
        """Module index and phase (0 forward, 1 backward, 2 recomputation) of what runs now."""
        if not self._in_backward:
            return self._stack[-1], FORWARD
        node = _current_node()
        if node is not None:
            number = node._sequence_nr()
            if self._bounds[0] <= number < 2**62:
                owner = self._owners[bisect.bisect_right(self._bounds, number) - 1]
                path = self._path(owner)
                if path != self._backward_path:
                    self._walk_to(path)
        if len(self._stack) > 1:
            return self._stack[-1], RECOMPUTE
        return self._backward_path[-1], BACKWARD
