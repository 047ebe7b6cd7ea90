"""compressed-tensors' packed and plain integers on the meta device."""

import torch
from torch import nn

from gpu_plan.planner.model.quantization.layers.base import StoredLinear, add_bias, empty
from gpu_plan.planner.model.quantization.scheme import Scheme, Target
from gpu_plan.planner.model.source.headers import StoredTensor
from gpu_plan.planner.units import ceil_div


class CompressedIntMeta(StoredLinear, nn.Linear):
    """vllm-project/compressed-tensors@ac8e2ba compressors/pack_quantized/base.py, and naive_quantized for 8 bits."""

    kernel = "compressed-tensors compressors/base.py: BaseCompressor.decompress_module, before a plain product"

    def __init__(self, linear: nn.Module, scheme: Scheme, target: Target, dtype: torch.dtype) -> None:
        super().__init__(linear, target)
        self.bits = scheme.bits
        self.packed = scheme.config.get("format", "pack-quantized") == "pack-quantized"
        self.symmetric = scheme.symmetric
        self.scale_dtype = dtype
        rows, columns = self.out_features, self.in_features
        self.groups = ceil_div(columns, scheme.group_size) if scheme.group_size else 1
        self.scale_rows = rows if scheme.group_size or scheme.block else 1
        shape = (rows, ceil_div(columns * self.bits, 32)) if self.packed else (rows, columns)
        codes = empty(shape, torch.int32 if self.packed else torch.int8)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.keep("weight_scale", (self.scale_rows, self.groups), dtype)
        if not self.symmetric:
            self.keep("weight_zero_point", self._zeros_shape, codes.dtype)
        if self.packed:
            self.keep("weight_shape", (2,), torch.int64)

    @property
    def _zeros_shape(self) -> tuple[int, int]:
        return (ceil_div(self.scale_rows * self.bits, 32) if self.packed else self.scale_rows), self.groups

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """The weight is unpacked to int8 and dequantised, then multiplied."""
        out = torch.matmul(x, self._decompressed(x.dtype).t())
        return add_bias(out, self.bias)

    def _decompressed(self, dtype: torch.dtype) -> torch.Tensor:
        """lifecycle/forward.py: dequantize."""
        codes = empty((self.out_features, self.in_features), torch.int8) if self.packed else self.weight
        return codes.to(self.scale_dtype).mul_(1).to(dtype)

    def checkpoint(self) -> dict[str, StoredTensor]:
        """compression_param_names."""
        name, dtype = ("weight_packed", "int32") if self.packed else ("weight", "int8")
        held: dict[str, StoredTensor] = {name: (tuple(self.weight.shape), dtype)}
        scale = str(self.scale_dtype).removeprefix("torch.")
        held["weight_scale"] = ((self.scale_rows, self.groups), scale)
        if not self.symmetric:
            held["weight_zero_point"] = (self._zeros_shape, dtype)
        if self.packed:
            held["weight_shape"] = ((2,), "int64")
        return {**held, **self.bias_entry()}
