"""What all stand-ins for quantised linear layers share, and the product whose kernel reads packed weights."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.flop_counter import register_flop_formula
from transformers.pytorch_utils import Conv1D

from gpu_plan.planner.model.quantization.scheme import Target
from gpu_plan.planner.model.source.headers import StoredTensor

_LIBRARY = torch.library.Library("plan", "FRAGMENT")
_LIBRARY.define("packed_mm(Tensor x, Tensor[] stored, int rows, int computed, ScalarType dtype, int splits) -> Tensor")


def _packed_mm(
    x: torch.Tensor, stored: list[torch.Tensor], rows: int, computed: int, dtype: torch.dtype, splits: int
) -> torch.Tensor:
    return x.new_empty((*([splits] if splits > 1 else ()), *x.shape[:-1], rows), dtype=dtype)


_LIBRARY.impl("packed_mm", _packed_mm, "Meta")


def _packed_mm_flops(
    x: tuple[int, ...], stored: object, rows: int, computed: int, dtype: object, *args: object, **kwargs: object
) -> int:
    return 2 * computed * math.prod(x)


register_flop_formula(torch.ops.plan.packed_mm)(_packed_mm_flops)


def packed_mm(
    x: torch.Tensor,
    stored: list[torch.Tensor],
    rows: int,
    dtype: torch.dtype,
    computed: int | None = None,
    splits: int = 1,
) -> torch.Tensor:
    """One kernel that reads `stored` packed: [..., in] to [..., rows] of `dtype`; nothing else is allocated.

    `computed`: outputs before a fused activation halves them. `splits`: parts of the inputs whose products are put out
    each by itself, [splits, ..., rows], where there are several.
    """
    out: torch.Tensor = torch.ops.plan.packed_mm(x, stored, rows, computed or rows, dtype, splits)
    return out


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An allocation of a kernel's own."""
    return torch.empty(shape, dtype=dtype, device="meta")


class StoredLinear(nn.Module):
    """A linear layer whose weight is stored otherwise; subclasses say how, and what a product allocates.

    Tensors as they stand on the GPU are parameters and buffers; `checkpoint` says what a file holds. Those whose real
    class is an nn.Linear are one too: peft asks.
    """

    is_quantised = True
    kernel: ClassVar[str]
    """Whose product runs: project, file and function."""

    def __init__(self, linear: nn.Module, target: Target) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = sizes_of(linear)
        self.target = target
        self.bias: nn.Parameter | None = linear.bias
        self.made_of = type(linear)

    def keep(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """A tensor that stands on the GPU beside the weight."""
        self.register_buffer(name, empty(shape, dtype), persistent=False)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features], without autograd."""
        raise NotImplementedError

    def save(self, ctx: Any, x: torch.Tensor) -> None:
        """Keeps what the real function saves for its backward; nothing unless overridden."""

    def gradient(self, ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """Gradient of the input, [..., in_features]."""
        raise NotImplementedError

    def checkpoint(self) -> dict[str, StoredTensor]:
        """Tensors of a checkpoint, by their names below the module's."""
        raise NotImplementedError

    def bias_entry(self) -> dict[str, StoredTensor]:
        """The bias as a checkpoint's entry."""
        return {} if self.bias is None else {"bias": entry(self.bias)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features], in the type of `x`."""
        if torch.is_grad_enabled() and x.requires_grad:
            out: torch.Tensor = _Product.apply(x, self)
            return out
        return self.product(x)


class _Product(torch.autograd.Function):
    """A product with a frozen weight: only the input has a gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: StoredLinear) -> torch.Tensor:
        ctx.layer = layer
        layer.save(ctx, x)
        return layer.product(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None
        layer: StoredLinear = ctx.layer
        return layer.gradient(ctx, grads[0]), None


def sizes_of(linear: nn.Module) -> tuple[int, int]:
    """Input and output features of a linear layer or of GPT-2's Conv1D."""
    if isinstance(linear, Conv1D):
        rows, columns = linear.weight.shape
        return rows, columns
    assert isinstance(linear, nn.Linear)
    return linear.in_features, linear.out_features


def entry(tensor: torch.Tensor) -> StoredTensor:
    """Shape and torch dtype name."""
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def add_bias(out: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """In place, as the real layers do."""
    return out if bias is None else out.add_(bias)


Make = Callable[[nn.Module], StoredLinear]
"""A layer's stand-in, or an error that says why it cannot be stored so."""
