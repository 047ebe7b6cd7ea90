"""Transformer Engine's linear layers in float8, with whole weights' scales (module/linear.py, layernorm_linear.py,
grouped_linear.py, base.py of release 2.11). Custom functions have untyped contexts, hence Any.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from gpu_plan.planner.trace.megatron.group import all_sum, gather, scatter_sum
from gpu_plan.planner.trace.megatron.products.float8 import (
    Float8,
    Quantised,
    columns_of,
    product,
    quantise,
    quantised_rows,
    weight_gradient,
)
from gpu_plan.planner.trace.megatron.products.norms import clear, empty_statistics, normalised, normalised_backward

Parallel = Literal["column", "row", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a layer is called with beside its tensors."""

    how: Float8
    ranks: int
    sequence: bool
    mode: Parallel
    weight: Quantised
    """In float8, as the module holds it; `[outputs, inputs]`."""
    outputs: int
    keeps_own: bool = False
    """Whether the input stays in 16 bits for the backward, which somebody else keeps as well
    (set_save_original_input)."""

    @property
    def gathers(self) -> bool:
        """Whether the input is of this rank's tokens alone."""
        return self.mode == "column" and self.sequence and self.ranks > 1


class ScaledLinear(torch.autograd.Function):
    """Keeps its input's columns; of this rank's tokens the rows, where they are shared out."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, dummy: Any, call: Call) -> torch.Tensor:
        rows, kept = _taken(x, call)
        out = _forward(rows, call, bias).view(-1, *x.shape[1:-1], call.outputs)
        del rows
        if call.mode == "row" and call.ranks > 1:
            out = scatter_sum(out, call.ranks) if call.sequence else all_sum(out, call.ranks)
        ctx.save_for_backward(kept)
        ctx.call, ctx.dummy, ctx.use_bias, ctx.shape = call, dummy, bias is not None, x.shape
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        (kept,) = ctx.saved_tensors
        call: Call = ctx.call
        grad, of_bias = _of_output(grads[0].contiguous(), call, use_bias=ctx.use_bias)
        columns = _columns_again(kept, call) if call.keeps_own else _columns(kept, call)
        of_input = _of_input(grad, call, ctx.shape)
        of_weight = _of_weight(grad, columns, call, ctx.dummy)
        return of_input, of_weight, of_bias, None, None


class ScaledNormLinear(torch.autograd.Function):
    """Keeps the input, the normalised one in float8, and the statistics of each row."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        norm_weight: torch.Tensor,
        norm_bias: Any,
        weight: torch.Tensor,
        bias: Any,
        dummy: Any,
        call: Call,
    ) -> torch.Tensor:
        if call.how.delayed:
            statistics = empty_statistics(x, norm_bias)
            rows, kept = _taken(x, call)
        else:
            normed, statistics = normalised(x, norm_weight, norm_bias)
            rows, kept = _taken(normed, call)
            del normed
        out = _forward(rows, call, bias).view(-1, *x.shape[1:-1], call.outputs)
        del rows
        ctx.save_for_backward(x, kept, norm_weight, *statistics)
        ctx.call, ctx.dummy = call, dummy
        ctx.uses = (norm_bias is not None, bias is not None)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, kept, norm_weight, *statistics = ctx.saved_tensors
        call: Call = ctx.call
        norm_biased, biased = ctx.uses
        grad, of_bias = _of_output(grads[0].contiguous(), call, use_bias=biased)
        columns = _columns(kept, call)
        of_normed = _of_input(grad, call, x.shape)
        of_weight = _of_weight(grad, columns, call, ctx.dummy)
        del columns, grad
        clear(kept)
        of_input, of_norm, of_norm_bias = normalised_backward(of_normed, x, norm_weight, norm_biased)
        for one in statistics:
            clear(one)
        return of_input, of_norm, of_norm_bias, of_weight, of_bias, None, None


class ScaledGrouped(torch.autograd.Function):
    """_GroupedLinear: every expert's rows brought to float8; their columns are kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dummy: Any, call: Call, *weights: torch.Tensor) -> torch.Tensor:
        rows, kept = _taken(x, call)
        out = _forward(rows, call, None)
        del rows
        ctx.save_for_backward(kept)
        ctx.call, ctx.dummy, ctx.shape, ctx.count = call, dummy, x.shape, len(weights)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        (kept,) = ctx.saved_tensors
        call: Call = ctx.call
        grad = quantise(grads[0].contiguous(), call.how)
        columns = _columns_again(kept, call) if call.keeps_own else kept
        of_input = _of_input(grad, call, ctx.shape)
        rows, inputs = ctx.shape
        each = max(_ALIGNED, rows // ctx.count // _ALIGNED * _ALIGNED)
        shape = call.outputs, min(each, rows), inputs
        own = [weight_gradient(grad.columns, columns, shape, ctx.dummy) for _ in range(ctx.count)]
        return of_input, None, None, *own


_ALIGNED = 16
"""Rows of an expert are padded to as many (extensions/transformer_engine.py: Fp8Padding)."""


def _taken(x: torch.Tensor, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that the product reads, and what is kept of them."""
    if call.gathers:
        own = quantised_rows(x)
        return gather(own, call.ranks), x if call.keeps_own else own
    if call.keeps_own:
        return quantised_rows(x), x
    taken = quantise(x, call.how)
    return taken.rows, taken.columns


def _columns(kept: torch.Tensor, call: Call) -> torch.Tensor:
    """The input's columns for the weight's gradient, of all tokens."""
    return columns_of(gather(kept, call.ranks), call.how) if call.gathers else kept


def _columns_again(own: torch.Tensor, call: Call) -> torch.Tensor:
    """The same of an input that was kept in 16 bits."""
    return _columns(quantised_rows(own), call) if call.gathers else quantise(own, call.how).columns


def _forward(rows: torch.Tensor, call: Call, bias: Any) -> torch.Tensor:
    return product(rows, call.weight.rows, (rows.shape[0], rows.shape[1], call.outputs), bias)


def _of_output(grad: torch.Tensor, call: Call, *, use_bias: bool) -> tuple[Quantised, torch.Tensor | None]:
    """The gradient that came in, of all tokens, and the bias's."""
    of_bias = grad.view(-1, grad.shape[-1]).sum(0) if use_bias else None
    if call.mode == "row" and call.sequence and call.ranks > 1:
        rows = gather(quantised_rows(grad), call.ranks)
        return Quantised(rows, columns_of(rows, call.how)), of_bias
    return quantise(grad, call.how), of_bias


def _of_input(grad: Quantised, call: Call, shape: torch.Size) -> torch.Tensor:
    whole = product(grad.rows, call.weight.columns, (grad.rows.shape[0], call.outputs, shape[-1]))
    if call.mode == "column" and call.ranks > 1:
        whole = scatter_sum(whole, call.ranks) if call.sequence else all_sum(whole, call.ranks)
    return whole.view(shape)


def _of_weight(grad: Quantised, columns: torch.Tensor, call: Call, dummy: Any) -> torch.Tensor:
    rows = grad.rows.shape[0]
    return weight_gradient(grad.columns, columns, (call.outputs, rows, columns.numel() // rows), dummy)
