"""Transformer Engine's linear layers in float8 under Megatron-core: delayed and current scaling of whole tensors.

transformer_engine/pytorch/module/linear.py (_Linear), layernorm_linear.py (_LayerNormLinear), base.py
(grad_output_preprocess, get_weight_workspace), tensor/float8_tensor.py (Float8Quantizer, Float8CurrentScalingQuantizer)
of release 2.11. Before Blackwell products take both operands row by row, so that what a backward reads is kept in the
other order: `twice`. Scales of one element are not counted. Custom functions have untyped contexts, hence Any.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

_TYPE = torch.float8_e4m3fn


@dataclass(frozen=True, slots=True)
class Float8:
    """How operands are brought to float8."""

    delayed: bool
    """By the largest values of steps before, so that a norm writes float8 itself."""
    twice: bool
    """Whether an operand is kept in both orders."""


class Quantised(NamedTuple):
    """An operand, flat: [rows, columns], and in the other order; the same storage where one serves for both."""

    rows: torch.Tensor
    columns: torch.Tensor


def empty_weight(outputs: int, inputs: int, how: Float8, *, stored: bool) -> dict[str, torch.Tensor]:
    """What a module holds of its weight in float8 from its first micro batch on, by name: nothing of the rows where the
    parameter itself is float8."""
    found = {} if stored else {"weight_float8": torch.empty(outputs, inputs, dtype=_TYPE, device="meta")}
    if how.twice:
        found["weight_float8_columns"] = torch.empty(inputs, outputs, dtype=_TYPE, device="meta")
    return found


def quantise(x: torch.Tensor, how: Float8) -> Quantised:
    """Rows and columns, by one kernel."""
    rows = quantised_rows(x)
    return Quantised(rows, columns_of(rows, how))


def quantised_rows(x: torch.Tensor) -> torch.Tensor:
    """Rows alone."""
    rows = torch.empty((x.numel() // x.shape[-1], x.shape[-1]), dtype=_TYPE, device=x.device)
    return rows.copy_(x.reshape(rows.shape))


def columns_of(rows: torch.Tensor, how: Float8) -> torch.Tensor:
    """The other order (update_usage(columnwise_usage=True)): a transposition, or the same storage."""
    if not how.twice:
        return rows
    columns = torch.empty(rows.shape[::-1], dtype=_TYPE, device=rows.device)
    return columns.copy_(rows.t())


def product(a: torch.Tensor, b: torch.Tensor, shape: tuple[int, int, int], bias: Any = None) -> torch.Tensor:
    """[m, k] x [k, n] in 16 bits of float8 storages in whatever order."""
    return torch._scaled_mm(*_operands(a, b, shape), *_scales(a), bias=bias, out_dtype=torch.bfloat16)


def product_into(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, shape: tuple[int, int, int]) -> torch.Tensor:
    """The same into what is there."""
    torch._scaled_mm(*_operands(a, b, shape), *_scales(a), out_dtype=out.dtype, out=out)
    return out


def weight_gradient(grad: torch.Tensor, x: torch.Tensor, shape: tuple[int, int, int], dummy: Any) -> torch.Tensor:
    """[outputs, rows] x [rows, inputs]: made, or added to the buffer, and then what stands for it."""
    if dummy is None:
        return product(grad, x, shape)
    product_into(dummy, grad, x, shape)
    found: torch.Tensor = dummy.detach()
    return found


def _operands(a: torch.Tensor, b: torch.Tensor, shape: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    m, k, n = shape
    a, b = (x if x.dtype is _TYPE else x.detach().view(_TYPE) for x in (a, b))
    return a.as_strided((m, k), (k, 1)), b.as_strided((k, n), (1, k))


def _scales(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    one = torch.empty(1, dtype=torch.float32, device=x.device)
    return one, one
