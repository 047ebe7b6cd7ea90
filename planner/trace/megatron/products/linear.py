"""Transformer Engine's linear layers under Megatron-core, in 16 bits.

transformer_engine/pytorch/module/linear.py (_Linear), module/layernorm_linear.py (_LayerNormLinear) and
module/base.py (get_dummy_wgrad) of release 2.11, as megatron/core/extensions/transformer_engine.py calls them. Custom
functions have untyped contexts, hence Any.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.part import DUMMY
from gpu_plan.planner.trace.megatron.group import all_sum, gather, scatter_sum
from gpu_plan.planner.trace.megatron.products.float8 import Float8, Quantised, empty_weight
from gpu_plan.planner.trace.megatron.products.norms import clear, normalised, normalised_backward, parameter
from gpu_plan.planner.trace.megatron.products.scaled import Call, Parallel, ScaledLinear, ScaledNormLinear
from gpu_plan.planner.trace.recording.recorder import STANDS_FOR_BYTES

_MAIN_GRADIENT_BYTES = 4
"""Of an element of the buffer that a fused product reads, adds to and writes."""


@dataclass(frozen=True, slots=True)
class Shared:
    """How the ranks of a tensor parallel group share a layer."""

    ranks: int
    sequence: bool
    """Whether tokens are shared out between layers."""
    fused_gradients: bool
    """Whether a weight's gradient goes straight into the buffer: autograd is handed a tensor that stands for it."""
    float8: Float8 | None = None
    """How operands are brought to float8; None: products are of 16 bits."""
    float8_stored: bool = False
    """Whether weights are stored so (`--fp8-param-gather`)."""

    @property
    def gathers(self) -> bool:
        return self.sequence and self.ranks > 1


def float8_of(layout: Layout) -> Float8 | None:
    """How products are in float8; None where they are of 16 bits."""
    return None if layout.float8 == "none" else Float8(layout.float8 == "delayed", layout.float8_twice)


def shared_of(layout: Layout) -> Shared:
    """How tensor parallel ranks share a dense layer."""
    return Shared(
        layout.tensor, layout.sequence, layout.fused_gradients, float8_of(layout), float8_stored=layout.float8_stored
    )


class _Linear(torch.autograd.Function):
    """Keeps its input (this rank's tokens of it where they are shared out)."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, dummy: Any, shared: Shared, mode: Parallel
    ) -> torch.Tensor:
        total = gather(x, shared.ranks) if mode == "column" and shared.gathers else x
        out = product(total, weight, bias)
        del total
        if mode == "row" and shared.ranks > 1:
            out = scatter_sum(out, shared.ranks) if shared.sequence else all_sum(out, shared.ranks)
        ctx.save_for_backward(x, weight)
        ctx.shared, ctx.mode, ctx.dummy, ctx.use_bias = shared, mode, dummy, bias is not None
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        shared: Shared = ctx.shared
        grad = grads[0].contiguous()
        if ctx.mode == "row" and shared.gathers:
            grad = gather(grad, shared.ranks)
        column = ctx.mode == "column"
        total = gather(x, shared.ranks) if column and shared.gathers else x
        whole = input_gradient(grad, weight)
        of_input = whole
        if column and shared.ranks > 1:
            of_input = scatter_sum(whole, shared.ranks) if shared.sequence else all_sum(whole, shared.ranks)
        of_weight = weight_gradient(grad, total, ctx.dummy)
        of_bias = grad.reshape(-1, grad.shape[-1]).sum(0) if ctx.use_bias else None
        return of_input, of_weight, of_bias, None, None, None


class _NormLinear(torch.autograd.Function):
    """Keeps the input, the normalised one, and the statistics of each row."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        norm_weight: torch.Tensor,
        norm_bias: Any,
        weight: torch.Tensor,
        bias: Any,
        dummy: Any,
        shared: Shared,
    ) -> torch.Tensor:
        normed, statistics = normalised(x, norm_weight, norm_bias)
        total = gather(normed, shared.ranks) if shared.gathers else normed
        out = product(total, weight, bias)
        del total
        ctx.save_for_backward(x, normed, norm_weight, weight, *statistics)
        ctx.shared, ctx.dummy = shared, dummy
        ctx.uses = (norm_bias is not None, bias is not None)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, normed, norm_weight, weight, *statistics = ctx.saved_tensors
        shared: Shared = ctx.shared
        norm_biased, biased = ctx.uses
        grad = grads[0].contiguous()
        total = gather(normed, shared.ranks) if shared.gathers else normed
        whole = input_gradient(grad, weight)
        of_normed = whole
        if shared.ranks > 1:
            of_normed = scatter_sum(whole, shared.ranks) if shared.sequence else all_sum(whole, shared.ranks)
        of_weight = weight_gradient(grad, total, ctx.dummy)
        of_bias = grad.reshape(-1, grad.shape[-1]).sum(0) if biased else None
        del total
        clear(normed)
        of_input, of_norm, of_norm_bias = normalised_backward(of_normed, x, norm_weight, norm_biased)
        for one in statistics:
            clear(one)
        return of_input, of_norm, of_norm_bias, of_weight, of_bias, None, None


def product(x: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
    flat = x.reshape(-1, x.shape[-1])
    out = torch.mm(flat, weight.t()) if bias is None else torch.addmm(bias, flat, weight.t())
    return out.view(*x.shape[:-1], weight.shape[0])


def input_gradient(grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.mm(grad.reshape(-1, grad.shape[-1]), weight).view(*grad.shape[:-1], weight.shape[1])


def weight_gradient(grad: torch.Tensor, x: torch.Tensor, dummy: Any) -> torch.Tensor:
    """In a storage of its own, or in the buffer, and then a tensor that stands for it, one for each shape."""
    flat, rows = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
    if dummy is None:
        return torch.mm(flat.t(), rows)
    torch.mm(flat.t(), rows, out=dummy)
    found: torch.Tensor = dummy.detach()
    return found


class Linear(nn.Module):
    """TELinear and its kinds: sizes are those of this rank."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        shared: Shared,
        mode: Parallel,
        *,
        bias: bool = False,
        apart: bool = False,
        kept: bool = False,
    ) -> None:
        super().__init__()
        self.weight = parameter(outputs, inputs)
        # Delayed scaling does not keep what it has not quantised (linear.py: save_original_input).
        self._kept = kept and shared.float8 is not None and not shared.float8.delayed
        """Whether somebody keeps the input anyway."""
        hold_float8(self, outputs, inputs, shared)
        self.bias = parameter(outputs) if bias else None
        self._shared, self._mode = shared, mode
        self._apart = apart
        """Whether the bias is handed on instead of added (`skip_bias_add`)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self._apart else self.bias
        dummy = dummy_of(self, self.weight)
        if self._shared.float8 is None:
            out: torch.Tensor = _Linear.apply(x, self.weight, bias, dummy, self._shared, self._mode)
            return out
        call = call_of(self, self.weight, self._shared, self._mode, kept=self._kept)
        out = ScaledLinear.apply(x, self.weight, bias, dummy, call)
        return out


class NormLinear(nn.Module):
    """TELayerNormColumnParallelLinear."""

    def __init__(
        self, inputs: int, outputs: int, shared: Shared, *, norm_bias: bool, bias: bool = False, apart: bool = False
    ) -> None:
        super().__init__()
        self.layer_norm_weight = parameter(inputs)
        self.layer_norm_bias = parameter(inputs) if norm_bias else None
        self.weight = parameter(outputs, inputs)
        self.bias = parameter(outputs) if bias else None
        self._shared, self._apart = shared, apart
        hold_float8(self, outputs, inputs, shared)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self._apart else self.bias
        own = (x, self.layer_norm_weight, self.layer_norm_bias, self.weight, bias, dummy_of(self, self.weight))
        if self._shared.float8 is None:
            out: torch.Tensor = _NormLinear.apply(*own, self._shared)
            return out
        out = ScaledNormLinear.apply(*own, call_of(self, self.weight, self._shared, "column"))
        return out


def hold_float8(module: nn.Module, outputs: int, inputs: int, shared: Shared) -> None:
    """What a module holds of its weight in float8 (base.py: get_weight_workspace), where products are so."""
    if shared.float8 is not None:
        for name, held in empty_weight(outputs, inputs, shared.float8, stored=shared.float8_stored).items():
            module.register_buffer(name, held, persistent=False)


def call_of(module: nn.Module, weight: torch.Tensor, shared: Shared, mode: Parallel, *, kept: bool = False) -> Call:
    """How a module's product in float8 is called."""
    assert shared.float8 is not None
    rows = getattr(module, "weight_float8", weight)
    return Call(
        how=shared.float8,
        ranks=shared.ranks,
        sequence=shared.sequence,
        mode=mode,
        weight=Quantised(rows, getattr(module, "weight_float8_columns", rows)),
        outputs=weight.shape[0],
        keeps_own=kept,
    )


def dummy_of(module: nn.Module, weight: torch.Tensor) -> Any:
    """What stands for the gradients of weights of this shape where they go straight into the buffer; else None."""
    dummies: dict[tuple[int, ...], torch.Tensor] | None = getattr(module, "_dummies", None)
    return None if dummies is None else dummies[tuple(weight.shape)]


def give_dummies(model: nn.Module) -> None:
    """One tensor for each shape of weights that a fused product adds to the buffer (get_dummy_wgrad), as a buffer."""
    found: dict[tuple[int, ...], torch.Tensor] = {}
    for module in list(model.modules()):
        weight = getattr(module, "weight", getattr(module, "weight0", None))
        if not isinstance(weight, nn.Parameter) or weight.dim() != 2 or not getattr(module, "fuses", True):
            continue
        fuses = isinstance(module, Linear | NormLinear) or hasattr(module, "weight0")
        if not fuses and not getattr(module, "fuses", False):
            continue
        shape = tuple(weight.shape)
        if shape not in found:
            found[shape] = torch.empty(shape, dtype=weight.dtype, device="meta")
            setattr(found[shape], STANDS_FOR_BYTES, _MAIN_GRADIENT_BYTES)
            model.register_buffer(f"{DUMMY}_{len(found)}", found[shape], persistent=False)
        object.__setattr__(module, "_dummies", found)
