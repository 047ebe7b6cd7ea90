"""What FSDP2's hook does to what experts take, where they are a unit of their own: cast, and marked for backward.

torch 2.13 distributed/fsdp/_fully_shard/_fsdp_state.py: _pre_forward casts the inputs first (cast_forward_inputs), then
_fsdp_param_group.py: _register_post_backward_hook puts one node behind them all. Backward passes that node when all
their gradients are there, reduces the unit's, and only then the casts go back.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from gpu_plan.planner.trace.parallel.tensor import holds_experts


class _Entry(torch.autograd.Function):
    """RegisterPostBackwardFunction without what it reduces."""

    @staticmethod
    def forward(ctx: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return inputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients


@contextlib.contextmanager
def experts_entered(
    model: nn.Module, takes: str | None, before_entry: Callable[[], AbstractContextManager[None]]
) -> Iterator[None]:
    """Within, experts of `model` take floating tensors in the dtype `takes`; None: as they are, nothing is marked.

    `before_entry`: within it, nodes belong to the module around the one that was entered.
    """

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        values, spec = tree_flatten((args, kwargs))
        with before_entry():
            values = [_cast(value, getattr(torch, takes or "")) for value in values]
        fed = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor) and value.requires_grad]
        for place, value in zip(fed, _Entry.apply(*(values[i] for i in fed)) if fed else (), strict=True):
            values[place] = value
        return tree_unflatten(values, spec)

    with contextlib.ExitStack() as stack:
        for module in model.modules() if takes else ():
            if any(holds_experts(parameter) for parameter in module.parameters(recurse=False)):
                stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
        yield


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
