"""bitsandbytes' LLM.int8() linear layer on the meta device. Read in bitsandbytes 0.50.2."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from gpu_plan.planner.model.quantization.layers.base import StoredLinear, empty, packed_mm
from gpu_plan.planner.model.quantization.scheme import Target
from gpu_plan.planner.model.source.headers import StoredTensor
from gpu_plan.planner.units import ceil_div

OUTLIER_SHARE = 1000
"""One input column in so many holds an activation of at least the threshold (Dettmers et al., LLM.int8(), section 4:
about 0.1 % of all features); an assumption, as only data can tell."""


class Linear8bitMeta(StoredLinear, nn.Linear):
    """nn/modules.py: Linear8bitLt with `has_fp16_weights` off: int8 weight, one fp32 scale per row (SCB)."""

    kernel = "bitsandbytes autograd/_functions.py: MatMul8bitLt, backends/cuda/ops.py: int8_linear_matmul"

    def __init__(self, linear: nn.Module, target: Target, *, threshold: float) -> None:
        super().__init__(linear, target)
        self.threshold = threshold
        codes = empty((self.out_features, self.in_features), torch.int8)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.keep("SCB", (self.out_features,), torch.float32)

    @property
    def outliers(self) -> int:
        """Input columns that take the 16-bit path."""
        return ceil_div(self.in_features, OUTLIER_SHARE) if self.threshold > 0 else 0

    def checkpoint(self) -> dict[str, StoredTensor]:
        """Linear8bitLt._save_to_state_dict: the scales, and the layout as one byte."""
        return {
            "weight": ((self.out_features, self.in_features), "int8"),
            "SCB": ((self.out_features,), "float32"),
            "weight_format": ((), "uint8"),
            **self.bias_entry(),
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bias is not None and self.bias.dtype is not x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        return super().forward(x)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """MatMul8bitLt.forward, then int8_mixed_scaled_mm and int8_scaled_mm (backends/default/ops.py).

        A CPU trains with MatMul8bitFp, which dequantises the weight.
        """
        if self.target.capability is None and self.training:
            return functional.linear(x, self._dequantised(x.dtype), self.bias)
        rows = x.reshape(-1, self.in_features)
        codes, stats, columns = self._quantise(rows.to(torch.float16))
        if columns is None:
            out = self._scaled(codes, stats, rows.dtype)
        else:
            sub_a = empty((rows.shape[0], self.outliers), rows.dtype)
            sub_b = self._columns(rows.dtype)
            out = self._scaled(codes, stats, rows.dtype)
            out = out.addmm(sub_a, sub_b)
        return out.view(*x.shape[:-1], self.out_features)

    def _quantise(self, half: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """backends/cuda/ops.py: int8_vectorwise_quant."""
        stats = empty((half.shape[0],), torch.float32)
        codes = empty(tuple(half.shape), torch.int8)
        if self.threshold <= 0:
            return codes, stats, None
        mask = half.abs() >= self.threshold  # dies when this returns, as in the original
        columns = empty((self.outliers,), torch.int64)
        del mask
        return codes, stats, columns

    def _columns(self, dtype: torch.dtype) -> torch.Tensor:
        """Weight columns of the outliers, dequantised (bitsandbytes/_ops.py: int8_vectorwise_dequant)."""
        part = empty((self.out_features, self.outliers), torch.int8)
        scaled = part * self.SCB.view(-1, 1) * (1 / 127)
        return scaled.to(dtype).t()

    def _scaled(self, codes: torch.Tensor, stats: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """int8_linear_matmul into int32, int8_mm_dequant into fp16, then the type of the input."""
        sums = packed_mm(codes, [self.weight, stats, self.SCB], self.out_features, torch.int32)
        out = torch.empty_like(sums, dtype=torch.float16)
        if self.bias is not None and self.bias.dtype is not torch.float16:
            out.add_(self.bias)
        return out.to(dtype)

    def save(self, ctx: Any, x: torch.Tensor) -> None:
        """ctx.tensors: the input itself, though only the input's gradient is computed."""
        ctx.input = x

    def gradient(self, ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """MatMul8bitLt.backward: the whole weight in 16 bit."""
        dtype, rows = ctx.input.dtype, grad.reshape(-1, self.out_features).contiguous()
        return torch.matmul(rows.to(dtype), self._dequantised(dtype)).view(ctx.input.shape)

    def _dequantised(self, dtype: torch.dtype) -> torch.Tensor:
        weight = self.weight.to(dtype, copy=True)
        return weight.mul_(self.SCB.unsqueeze(1).mul(1.0 / 127.0))
