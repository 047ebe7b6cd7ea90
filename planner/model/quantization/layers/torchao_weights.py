"""torchao's weight-only linear layers on the meta device. Read in torchao 0.18.0."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.quantization.layers.base import StoredLinear, add_bias, empty, entry, packed_mm
from gpu_plan.planner.model.quantization.scheme import Scheme, Target
from gpu_plan.planner.model.source.headers import StoredTensor


class _WeightOnly(StoredLinear, nn.Linear):
    """What is common: a rank of tensor parallel quantises what it got of the weight (transformers
    integrations/torchao.py: TorchAoQuantize.convert)."""

    _hf_quantized_needs_local_tp = True
    weight: nn.Parameter

    def lie_beside(self, rows: int, columns: int) -> None:
        """Registers scales and what else goes with a weight of so many outputs and inputs. InputError where its
        inputs make no groups."""
        raise NotImplementedError

    def keep_part(self, rows: int, columns: int) -> None:
        """From now on this is a rank's layer of so many outputs and inputs; it still tells the whole one's sizes."""
        codes = empty((rows, columns * self.weight.shape[1] // self.in_features), self.weight.dtype)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.lie_beside(rows, columns)


class Int8WeightMeta(_WeightOnly):
    """quantize_/workflows/int8/int8_tensor.py: Int8Tensor of Int8WeightOnlyConfig, one fp32 scale per output."""

    kernel = "torchao quantization/quantize_/workflows/int8/int8_tensor.py: aten.linear"

    def __init__(self, linear: nn.Module, scheme: Scheme, target: Target, dtype: torch.dtype) -> None:
        super().__init__(linear, target)
        codes = empty((self.out_features, self.in_features), torch.int8)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.lie_beside(self.out_features, self.in_features)

    def lie_beside(self, rows: int, columns: int) -> None:
        """One scale and one zero point for each output."""
        self.keep("scale", (rows, 1), torch.float32)
        self.keep("zero_point", (rows, 1), torch.int8)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """Per-row scales: a 16-bit copy of the weight, the product, and the scaled product."""
        rows = x.reshape(-1, x.shape[-1])
        made = torch.mm(rows, self.weight.t().to(x.dtype))
        out = made * self.scale.to(made.dtype).flatten()
        return add_bias(out.view(*x.shape[:-1], self.weight.shape[0]), self.bias)

    def gradient(self, ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """Through the same 16-bit copy."""
        rows = grad.reshape(-1, self.out_features) * self.scale.to(grad.dtype).flatten()
        return (rows @ self.weight.to(grad.dtype)).view(*grad.shape[:-1], self.in_features)

    def checkpoint(self) -> dict[str, StoredTensor]:
        """prototype/safetensors: flatten_tensor_state_dict, with the unused zero points."""
        held = {"_weight_qdata": entry(self.weight), "_weight_scale": entry(self.scale)}
        held["_weight_zero_point"] = entry(self.zero_point)
        return {**held, **self.bias_entry()}


class Float8WeightMeta(_WeightOnly):
    """quantize_/workflows/float8/float8_tensor.py: Float8Tensor of Float8WeightOnlyConfig, scales per output."""

    kernel = "torchao quantization/quantize_/workflows/float8/float8_tensor.py: _float8_addmm_impl"

    def __init__(self, linear: nn.Module, scheme: Scheme, target: Target, dtype: torch.dtype) -> None:
        super().__init__(linear, target)
        codes = empty((self.out_features, self.in_features), torch.float8_e4m3fn)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.lie_beside(self.out_features, self.in_features)

    def lie_beside(self, rows: int, columns: int) -> None:
        """One scale for each output."""
        self.keep("scale", (rows, 1), torch.float32)

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


class Int4WeightMeta(_WeightOnly):
    """quantize_/workflows/int4/int4_tensor.py: Int4Tensor, the plain packing that Int4WeightOnlyConfig defaults to."""

    kernel = "torchao quantization/quantize_/workflows/int4/int4_tensor.py: mslk.bf16i4bf16_rowwise"

    def __init__(self, linear: nn.Module, scheme: Scheme, target: Target, dtype: torch.dtype) -> None:
        super().__init__(linear, target)
        self.group, self.scale_dtype = scheme.group_size or 128, dtype
        codes = empty((self.out_features, self.in_features // 2), torch.int8)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.lie_beside(self.out_features, self.in_features)

    def lie_beside(self, rows: int, columns: int) -> None:
        """A scale and a zero point for each group of inputs and each output."""
        if columns % self.group:
            raise InputError(
                f"torchao's int4 needs inputs in groups of {self.group}: a layer of {columns} inputs has no such"
                " groups; choose another group with torchao-int4-32 or -64"
            )
        self.keep("scale", (columns // self.group, rows), self.scale_dtype)
        self.keep("zero_point", (columns // self.group, rows), self.scale_dtype)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """One kernel; the bias is added into a new tensor."""
        rows, outputs = x.reshape(-1, x.shape[-1]), self.weight.shape[0]
        out = packed_mm(rows, [self.weight, self.scale, self.zero_point], outputs, x.dtype)
        out = out.view(*x.shape[:-1], outputs)
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


def keeps_part(module: nn.Module, local: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Leaves a layer of torchao's what a rank has of it, by its weight's `local` shape; other modules stay."""
    if isinstance(module, _WeightOnly):
        part = local(module.weight)
        module.keep_part(part.shape[0], part.shape[1] * module.in_features // module.weight.shape[1])
