"""Evaluation before the first step: a pass that was seen is not run again, for it changes nothing of what is trained.

nanoGPT runs four hundred of them first. On meta a pass gives shapes and no values, so that another of the same shapes
gives the same; what is kept of it between passes (a cache, a state) forbids that, and the pass is run.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

_PLAIN = (bool, int, float, str, type(None))


class Evaluations:
    """Passes without gradients of models in evaluation mode, by model and by what they were given."""

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[list[Any], TreeSpec]] = {}
        self.left_out = 0
        """How many passes were not run."""

    def run(self, module: nn.Module, call: Callable[[], Any], given: Any) -> Any:
        """`call()`, or new tensors like those that it gave for the same shapes."""
        key = None if module.training or torch.is_grad_enabled() else _key(module, given)
        if key is None:
            return call()
        if key in self._seen:
            leaves, spec = self._seen[key]
            self.left_out += 1
            made = [torch.empty_like(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            return tree_unflatten(made, spec)
        out = call()
        leaves, spec = tree_flatten(out)
        if leaves and all(_repeatable(leaf) for leaf in leaves):
            self._seen[key] = (leaves, spec)
        return out


def _key(module: nn.Module, given: Any) -> Any:
    """What decides the shapes of a pass; None where something else than tensors and plain values is given."""
    leaves, spec = tree_flatten(given)
    told: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            told.append((tuple(leaf.shape), leaf.dtype, leaf.device))
        elif isinstance(leaf, _PLAIN):
            told.append((type(leaf), leaf))
        else:
            return None
    return id(module), str(spec), tuple(told)


def _repeatable(leaf: Any) -> bool:
    """Whether a value of the result says nothing but its shape; whole numbers may be known."""
    if isinstance(leaf, torch.Tensor):
        return bool(leaf.is_meta and leaf.is_floating_point())
    return leaf is None
