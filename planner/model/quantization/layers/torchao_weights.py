"""torchao's weight-only linear layers on the meta device. Read in torchao 0.18.0."""

from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.quantization.layers.base import StoredLinear, add_bias, empty, entry, packed_mm
from gpu_plan.planner.model.quantization.scheme import Scheme, Target
from gpu_plan.planner.model.source.headers import StoredTensor


class Int8WeightMeta(StoredLinear, nn.Linear):
    """quantize_/workflows/int8/int8_tensor.py: Int8Tensor of Int8WeightOnlyConfig, one fp32 scale per output."""

    kernel = "torchao quantization/quantize_/workflows/int8/int8_tensor.py: aten.linear"

    def __init__(self, linear: nn.Module, scheme: Scheme, target: Target, dtype: torch.dtype) -> None:
        super().__init__(linear, target)
        codes = empty((self.out_features, self.in_features), torch.int8)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.keep("scale", (self.out_features, 1), torch.float32)
        self.keep("zero_point", (self.out_features, 1), torch.int8)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """Per-row scales: a 16-bit copy of the weight, the product, and the scaled product."""
        rows = x.reshape(-1, self.in_features)
        made = torch.mm(rows, self.weight.t().to(x.dtype))
        out = made * self.scale.to(made.dtype).flatten()
        return add_bias(out.view(*x.shape[:-1], self.out_features), self.bias)

    def gradient(self, ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """Through the same 16-bit copy."""
        rows = grad.reshape(-1, self.out_features) * self.scale.to(grad.dtype).flatten()
        return (rows @ self.weight.to(grad.dtype)).view(*grad.shape[:-1], self.in_features)

    def checkpoint(self) -> dict[str, StoredTensor]:
        """prototype/safetensors: flatten_tensor_state_dict, with the unused zero points."""
        held = {"_weight_qdata": entry(self.weight), "_weight_scale": entry(self.scale)}
        held["_weight_zero_point"] = entry(self.zero_point)
        return {**held, **self.bias_entry()}


class Float8WeightMeta(StoredLinear, nn.Linear):
    """quantize_/workflows/float8/float8_tensor.py: Float8Tensor of Float8WeightOnlyConfig, scales per output."""

    kernel = "torchao quantization/quantize_/workflows/float8/float8_tensor.py: _float8_addmm_impl"

    def __init__(self, linear: nn.Module, scheme: Scheme, target: Target, dtype: torch.dtype) -> None:
        super().__init__(linear, target)
        codes = empty((self.out_features, self.in_features), torch.float8_e4m3fn)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.keep("scale", (self.out_features, 1), torch.float32)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """The weight is dequantised through fp32 (quant_primitives.py: _dequantize_affine_float8)."""
        out = torch.matmul(x, self._dequantised(x.dtype).t())
        return out if self.bias is None else out + self.bias

    def _dequantised(self, dtype: torch.dtype) -> torch.Tensor:
        wide = self.weight.to(torch.float32)
        return (wide * self.scale).to(dtype)

    def gradient(self, ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """Through the same copy."""
        return torch.matmul(grad, self._dequantised(grad.dtype))

    def checkpoint(self) -> dict[str, StoredTensor]:
        """prototype/safetensors: flatten_tensor_state_dict."""
        held = {"_weight_qdata": entry(self.weight), "_weight_scale": entry(self.scale)}
        return {**held, **self.bias_entry()}


class Int4WeightMeta(StoredLinear, nn.Linear):
    """quantize_/workflows/int4/int4_tensor.py: Int4Tensor, the plain packing that Int4WeightOnlyConfig defaults to."""

    kernel = "torchao quantization/quantize_/workflows/int4/int4_tensor.py: mslk.bf16i4bf16_rowwise"

    def __init__(self, linear: nn.Module, scheme: Scheme, target: Target, dtype: torch.dtype) -> None:
        super().__init__(linear, target)
        group = scheme.group_size or 128
        if self.in_features % group:
            raise InputError(
                f"torchao's int4 needs inputs in groups of {group}: a layer of {self.in_features} inputs has no such"
                " groups; choose another group with torchao-int4-32 or -64"
            )
        groups = self.in_features // group
        codes = empty((self.out_features, self.in_features // 2), torch.int8)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.keep("scale", (groups, self.out_features), dtype)
        self.keep("zero_point", (groups, self.out_features), dtype)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """One kernel; the bias is added into a new tensor."""
        rows = x.reshape(-1, self.in_features)
        out = packed_mm(rows, [self.weight, self.scale, self.zero_point], self.out_features, x.dtype)
        out = out.view(*x.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias

    def checkpoint(self) -> dict[str, StoredTensor]:
        """prototype/safetensors: flatten_tensor_state_dict."""
        held = {f"_weight_{name}": entry(tensor) for name, tensor in self._named()}
        return {**held, **self.bias_entry()}

    def _named(self) -> list[tuple[str, torch.Tensor]]:
        return [("qdata", self.weight), ("scale", self.scale), ("zero_point", self.zero_point)]


def torchao_class(scheme: Scheme) -> type[Int8WeightMeta] | type[Float8WeightMeta] | type[Int4WeightMeta]:
    """The stand-in for a scheme's tensors."""
    if scheme.bits == 4:
        return Int4WeightMeta
    return Float8WeightMeta if scheme.number == "float" else Int8WeightMeta
