"""FP8 weights on the meta device: transformers' own classes, with the kernels' allocations in place of the kernels.

transformers 5.23: integrations/finegrained_fp8.py and integrations/compressed_tensors.py, whose modules are made by
transformers itself.
"""

from typing import Any

import torch
from torch import nn
from transformers.integrations import finegrained_fp8
from transformers.integrations.compressed_tensors import CompressedTensorsFP8Linear, quantize_fp8_per_row

from gpu_plan.planner.model.quantization.layers.base import entry, packed_mm
from gpu_plan.planner.model.quantization.scheme import Target
from gpu_plan.planner.model.source.headers import StoredTensor
from gpu_plan.planner.units import ceil_div

ACTIVATION_BLOCK = 128
"""Inputs that share one scale of a quantised activation (deepgemm.py: _select_fp8_cast_kwargs)."""


class Fp8LinearMeta(finegrained_fp8.FP8Linear):
    """`FP8Linear` whose product allocates what DeepGEMM or the Triton kernel does."""

    is_quantised = True
    target: Target

    @property
    def quantises_first(self) -> bool:
        """Whether DeepGEMM runs, which quantises activations into tensors of their own (fp8_linear's conditions)."""
        squares = self.block_size is not None and tuple(self.block_size) == (128, 128)
        major = (self.target.capability or (0, 0))[0]
        hopper = major == 9
        blackwell = major == 10 and self.weight_scale_inv.dtype is not torch.float32
        return squares and self.activation_scheme == "dynamic" and (hopper or blackwell)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features], in the type of `input`."""
        if torch.is_grad_enabled() and input.requires_grad:
            out: torch.Tensor = _Fp8Product.apply(input, self)
            return out
        return self.product(input)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """deepgemm.py: deepgemm_fp8_fp4_linear, or finegrained_fp8_linear, which quantises inside its kernel."""
        held: list[torch.Tensor] = []
        if self.quantises_first:
            columns = x.shape[-1]  # of a rank's part fewer than in_features
            rows = x.numel() // columns
            held.append(x.new_empty((rows, columns), dtype=torch.float8_e4m3fn))
            held.append(x.new_empty((rows, ceil_div(columns, ACTIVATION_BLOCK)), dtype=torch.float32))
        out = packed_mm(x, [self.weight, self.weight_scale_inv], self.weight.shape[0], x.dtype)
        del held
        return out if self.bias is None else out.add_(self.bias)

    def checkpoint(self) -> dict[str, StoredTensor]:
        """As transformers names them."""
        return {name: entry(parameter) for name, parameter in self.named_parameters(recurse=False)}


class _Fp8Product(torch.autograd.Function):
    """finegrained_fp8.py: FP8LinearFunction, whose backward dequantises the whole weight."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Fp8LinearMeta) -> torch.Tensor:
        ctx.layer = layer
        return layer.product(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        layer, grad = ctx.layer, grads[0]
        weight = finegrained_fp8._dequantize_fp8_weight(
            layer.weight, layer.weight_scale_inv, layer.block_size, grad.dtype
        )
        return grad @ weight, None


class ChannelFp8Meta(CompressedTensorsFP8Linear):
    """compressed-tensors' FP8 linear layer; the real function quantises the activations, in fp32."""

    is_quantised = True
    kernel = "transformers integrations/compressed_tensors.py: CompressedTensorsFP8Linear"
    stored_scales: int

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features]."""
        rows = input.reshape(-1, self.in_features)
        codes, scales = quantize_fp8_per_row(rows)
        bias = [] if self.bias is None else [self.bias]
        stored = [self.weight, self.weight_scale, scales, *bias]
        out = packed_mm(codes, stored, self.out_features, input.dtype)
        return out.view(*input.shape[:-1], self.out_features)

    def checkpoint(self) -> dict[str, StoredTensor]:
        """The scales are 16-bit and one per row, [out, 1], or one in all (ConvertFP8LinearScale reshapes them)."""
        shape = (self.stored_scales, 1) if self.stored_scales > 1 else (1,)
        held = {"weight": entry(self.weight), "weight_scale": (shape, "bfloat16")}
        return held | ({} if self.bias is None else {"bias": entry(self.bias)})


def _matmul(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return packed_mm(x, [weight, scales], weight.shape[-2], x.dtype)


def _grouped(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """finegrained-fp8's matmul_grouped and matmul_batched: every row meets one expert's weight."""
    return packed_mm(x, [weight, scales], weight.shape[1], x.dtype)


def use_meta_kernels() -> None:
    """Lets transformers' FP8 experts, which load a Triton kernel, run on the meta device."""
    finegrained_fp8._FINEGRAINED_FP8 = finegrained_fp8.FineGrainedFP8(
        matmul=_matmul, batched_matmul=_grouped, grouped_matmul=_grouped
    )


def stand_in(module: nn.Module, target: Target) -> None:
    """Turns transformers' FP8 modules into those that know their kernels; in place."""
    if type(module) is finegrained_fp8.FP8Linear:
        module.__class__ = Fp8LinearMeta
        module.target = target
    elif isinstance(module, finegrained_fp8.FP8Experts | finegrained_fp8.FP8GroupedLinear):
        module.is_quantised = True
