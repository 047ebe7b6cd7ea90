"""The operators of one training step in order, on meta with known values or on the CPU with real ones."""

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_loss
from gpu_plan.planner.trace.inputs.known import KnownValues, remember_literals
from gpu_plan.planner.trace.inputs.meta_ops import META_OPS

Call = tuple[str, tuple[tuple[int, ...], ...]]
"""An operator's name and the shapes of the floating-point tensors of two dimensions or more that it gave."""


class Operators(TorchDispatchMode):
    """Notes every operator; on meta, answers what reads values."""

    def __init__(self, known: KnownValues | None = None) -> None:
        super().__init__()
        self.known = known
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = self._run(func, args, kwargs or {})
        tensors = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]
        shapes = tuple(tuple(t.shape) for t in tensors if t.is_floating_point() and t.dim() > 1)
        if shapes:
            self.calls.append((str(func), shapes))
        return out

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.known is None:
            return func(*args, **kwargs)
        if func in META_OPS:
            return META_OPS[func](*args, **kwargs)
        answered, out = self.known.answer(func, args, kwargs)
        if not answered:
            out = func(*args, **kwargs)
            self.known.follow(func, args, kwargs, out)
        return out


def step_on_meta(model: nn.Module, batch: TrainingBatch) -> list[Call]:
    """Operators of forward and backward on meta."""
    known = KnownValues()
    for name, value in batch.values.items():
        known.put(batch.tensors[name], value)
    with Operators(known) as mode, remember_literals(known):
        training_loss(model, model(**batch.tensors)).backward()
    return mode.calls


def step_on_cpu(model: nn.Module, batch: TrainingBatch) -> list[Call]:
    """The same step with the same inputs, really computed: `model` is given storage and small random weights."""
    inputs = {
        name: torch.rand(value.shape) if isinstance(value, torch.Tensor) else value
        for name, value in batch.tensors.items()
    }
    inputs |= {name: value.clone() for name, value in batch.values.items()}
    fill(model)
    with Operators() as mode:
        training_loss(model, model(**inputs)).backward()
    return mode.calls


def fill(model: nn.Module) -> None:
    """Give a meta model storage on the CPU and random weights."""
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.normal_(0.0, 0.02, generator=generator)
            else:
                tensor.zero_()
