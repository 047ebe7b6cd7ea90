"""litgpt's linear layers: adapters of its own around a frozen layer, 16-bit or bitsandbytes' 4-bit as it then was."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from gpu_plan.planner.model.linear4bit import Linear4bitMeta

Quantised = Literal["", "nf4", "nf4-dq"]


def frozen(module: nn.Module) -> None:
    """Turns gradients off."""
    for parameter in module.parameters():
        parameter.requires_grad = False


def plain_linear(inputs: int, outputs: int, bias: bool, quantised: Quantised) -> nn.Module:
    """A frozen layer; lightning fabric/plugins/precision/bitsandbytes.py replaces all of them under `--quantize`."""
    linear: nn.Module = nn.Linear(inputs, outputs, bias=bias)
    frozen(linear)
    if quantised:
        linear = _Linear4bit(linear, double_quant=quantised == "nf4-dq", compute_dtype=torch.bfloat16)
    return linear


class _Linear4bit(Linear4bitMeta):
    """bitsandbytes 0.41 to 0.43."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _MatMul4Bit.apply(x, self.bias, self)
        return out


class _MatMul4Bit(torch.autograd.Function):
    """autograd/_functions.py: MatMul4Bit keeps its input until 0.43, though backward has no use for it.

    lightning quantises from float16, so that dequantised weights are float16 first.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, layer: _Linear4bit) -> torch.Tensor:
        ctx.layer = layer
        ctx.kept = x if any(ctx.needs_input_grad[:1]) else None
        return F.linear(x, _dequantised(layer, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None
        return torch.matmul(grads[0], _dequantised(ctx.layer, grads[0].dtype)), None, None


def _dequantised(layer: _Linear4bit, dtype: torch.dtype) -> torch.Tensor:
    """functional.py: dequantize_4bit."""
    if layer.double_quant:
        absmax = torch.empty(layer.scales, dtype=torch.float32, device="meta")
        absmax += layer.offset
    whole = torch.empty(layer.out_features, layer.in_features, dtype=torch.float16, device="meta")
    return whole.to(dtype)


class LoraLinear(nn.Module):
    """lora.py: LoRALinear."""

    def __init__(self, inputs: int, outputs: int, bias: bool, quantised: Quantised, rank: int, dropout: float) -> None:
        super().__init__()
        self.linear = plain_linear(inputs, outputs, bias, quantised)
        self.rank = rank
        if rank:
            self.lora_dropout = nn.Dropout(dropout)
            self.lora_A = nn.Parameter(torch.zeros(rank, inputs))
            self.lora_B = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pretrained: torch.Tensor = self.linear(x)
        if not self.rank:
            return pretrained
        lora = (self.lora_dropout(x) @ self.lora_A.transpose(0, 1) @ self.lora_B.transpose(0, 1)) * 2.0
        return pretrained + lora


class LoraQkv(nn.Module):
    """lora.py: LoRAQKVLinear: one product for all, adapters for some of query, key and value."""

    def __init__(
        self,
        inputs: int,
        sizes: tuple[int, int, int],
        enabled: tuple[bool, ...],
        bias: bool,
        quantised: Quantised,
        rank: int,
        dropout: float,
        *,
        in_place: bool,
    ) -> None:
        super().__init__()
        self.linear = plain_linear(inputs, sum(sizes), bias, quantised)
        self.width, self.whole, self.in_place = sum(sizes), all(enabled), in_place
        self.shapes = [size for size, on in zip(sizes, enabled, strict=True) if on]
        self.equal = len(set(sizes)) == 1
        self.lora_dropout = nn.Dropout(dropout)
        self.lora_A = nn.Parameter(torch.zeros(rank * len(self.shapes), inputs))
        self.lora_B = nn.Parameter(torch.zeros(sum(self.shapes), rank))
        if in_place and not self.whole:
            self.register_buffer("lora_ind", torch.empty(sum(self.shapes), dtype=torch.int64), persistent=False)

    def _padded(self, x: torch.Tensor) -> torch.Tensor:
        if self.whole:
            return x
        if self.in_place:
            result = x.new_zeros(*x.shape[:-1], self.width)
            return result.index_copy_(dim=-1, index=self.lora_ind, source=x)
        x = x.transpose(0, 1)
        result = x.new_zeros((*x.shape[:-1], self.width)).view(-1, self.width)
        index = torch.empty(sum(self.shapes), dtype=torch.int64, device=result.device)
        result = result.index_copy(1, index, x.reshape(-1, sum(self.shapes)))
        return result.view((*x.shape[:-1], self.width)).transpose(0, 1)

    def _multiplied(self, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if self.equal:
            return F.conv1d(rows, weight, groups=len(self.shapes))
        parts = zip(rows.chunk(len(self.shapes), dim=1), weight.split(self.shapes), strict=True)
        return torch.cat([F.conv1d(a, b) for a, b in parts], dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pretrained: torch.Tensor = self.linear(x)
        after_a = F.linear(self.lora_dropout(x), self.lora_A)
        after_b = self._multiplied(after_a.transpose(-2, -1), self.lora_B.unsqueeze(-1)).transpose(-2, -1)
        lora = self._padded(after_b) * 2.0
        return pretrained + lora


class AdapterLinear(nn.Module):
    """adapter_v2.py: AdapterV2Linear."""

    def __init__(self, inputs: int, outputs: int, bias: bool, quantised: Quantised) -> None:
        super().__init__()
        self.linear = plain_linear(inputs, outputs, bias, quantised)
        self.adapter_bias = nn.Parameter(torch.zeros(outputs))
        self.adapter_scale = nn.Parameter(torch.ones(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.adapter_scale * (self.linear(x) + self.adapter_bias)
