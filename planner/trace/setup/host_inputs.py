"""Inputs of checkpointed layers that wait in host memory between forward and backward.

torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py (OffloadWrapper) puts torch/autograd/graph.py
(save_on_cpu, pinned) around a checkpoint, which saves what it is called with by position (torch/utils/checkpoint.py:
_CheckpointFrame.save_inputs). Both copies are on the stream that computes. In a trace they are operators of their own,
`to_host` and `from_host`, since a meta tensor has nothing to copy.
"""

from collections.abc import Callable
from typing import Any

import torch

_OPERATORS = torch.library.Library("gpu_plan", "DEF")
_OPERATORS.define("to_host(Tensor(a!) value) -> ()")
_OPERATORS.define("from_host(SymInt[] size, *, ScalarType dtype) -> Tensor")
_OPERATORS.impl("to_host", lambda value: None, "CompositeExplicitAutograd")
_OPERATORS.impl(
    "from_host", lambda size, *, dtype: torch.empty(size, dtype=dtype, device="meta"), "CompositeExplicitAutograd"
)


def wait_on_host(model: torch.nn.Module, wanted: bool) -> None:
    """Has every checkpoint of `model` keep its inputs in host memory, or on the device again; in place."""
    for module in model.modules():
        own: Any = module.__dict__.get("_gradient_checkpointing_func")
        if own is not None:
            plain = getattr(own, "on_device", own)
            module._gradient_checkpointing_func = _kept_on_host(plain) if wanted else plain


def _kept_on_host(checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **words: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):
            return checkpoint(*args, **words)

    call.on_device = checkpoint  # type: ignore[attr-defined]
    return call


def _pack(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    with torch.no_grad():
        torch.ops.gpu_plan.to_host(tensor.detach())
    return tensor.size(), tensor.dtype


def _unpack(packed: tuple[torch.Size, torch.dtype]) -> torch.Tensor:
    size, dtype = packed
    tensor: torch.Tensor = torch.ops.gpu_plan.from_host(size, dtype=dtype)
    return tensor
