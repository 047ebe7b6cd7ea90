"""bitsandbytes' 4-bit linear layer on the meta device: what it stores and what it allocates.

Real Params4bit tensors quantise themselves when they move to a device and cannot hold a quantisation state on meta,
so these modules stand in for them. Read in bitsandbytes 0.50.2.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.base import get_keys_to_not_convert
from transformers.quantizers.quantizers_utils import should_convert_module

from gpu_plan.planner.units import ceil_div

BLOCK = 64
"""Elements that share one scale (Params4bit: blocksize)."""
SCALE_BLOCK = 256
"""Scales that share one scale of their own under double quantisation (functional.py: quantize_4bit)."""


class Linear4bitMeta(nn.Linear):
    """nn/modules.py: Linear4bit. The weight is packed, two elements to a byte; the scales are buffers."""

    is_quantised = True

    def __init__(self, linear: nn.Module, *, double_quant: bool, compute_dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        if isinstance(linear, Conv1D):
            self.in_features, self.out_features = linear.weight.shape
        else:
            assert isinstance(linear, nn.Linear)
            self.in_features, self.out_features = linear.in_features, linear.out_features
        self.double_quant = double_quant
        self.compute_dtype = compute_dtype
        self.compute_name = str(compute_dtype)
        self.bias = linear.bias
        self._store(self.in_features * self.out_features)
        self.requires_grad_(False)

    def _store(self, numel: int) -> None:
        """functional.py: quantize_4bit and QuantState; `code` is made anew for every layer."""
        blocks = ceil_div(numel, BLOCK)
        packed = torch.empty(ceil_div(numel, 2), 1, dtype=torch.uint8, device="meta")
        self.weight = nn.Parameter(packed, requires_grad=False)
        self._keep("code", 16, torch.float32)
        if self.double_quant:
            self._keep("absmax", blocks, torch.uint8)
            self._keep("offset", 1, torch.float32)
            self._keep("nested_absmax", ceil_div(blocks, SCALE_BLOCK), torch.float32)
            self._keep("nested_code", 256, torch.float32)
        else:
            self._keep("absmax", blocks, torch.float32)

    def _keep(self, name: str, numel: int, dtype: torch.dtype) -> None:
        self.register_buffer(name, torch.empty(numel, dtype=dtype, device="meta"), persistent=False)

    @property
    def scales(self) -> int:
        """Number of block scales."""
        return ceil_div(self.in_features * self.out_features, BLOCK)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features], in the dtype of `x`."""
        given = x.dtype
        x = x.to(self.compute_dtype)
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        out: torch.Tensor = MatMul4BitMeta.apply(x, bias, self)
        return out.to(given)


@contextlib.contextmanager
def _as_one_operator() -> Iterator[None]:
    """Hides what runs inside from selective checkpointing, which sees only `bitsandbytes::gemm_4bit` (_ops.py)."""
    mode = _get_current_dispatch_mode()
    selective = isinstance(mode, _CachingTorchDispatchMode | _CachedTorchDispatchMode)
    with _pop_mode_temporarily() if selective else contextlib.nullcontext():
        yield


class MatMul4BitMeta(torch.autograd.Function):
    """autograd/_functions.py: MatMul4Bit. Saves no activation; dequantises the whole weight in both directions.

    Forward on CUDA is _dequant_linear_fallback (backends/cuda/ops.py), which every product over more than 1536
    rows takes; smaller ones may run a kernel without the copy, which is not told apart here.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, layer: Linear4bitMeta) -> torch.Tensor:
        ctx.layer = layer
        with _as_one_operator():
            if layer.double_quant:
                absmax = torch.empty(layer.scales, dtype=torch.float32, device="meta")
                absmax = absmax + layer.offset
            weight = torch.empty(layer.out_features, layer.in_features, dtype=x.dtype, device="meta")
            return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None
        return torch.matmul(grads[0], _dequantised(ctx.layer, grads[0].dtype)), None, None


def _dequantised(layer: Linear4bitMeta, dtype: torch.dtype) -> torch.Tensor:
    """functional.py: dequantize_4bit, whose fp32 scales die when it returns."""
    if layer.double_quant:
        absmax = torch.empty(layer.scales, dtype=torch.float32, device="meta")
        absmax += layer.offset
    weight = torch.empty(layer.out_features, layer.in_features, dtype=layer.compute_dtype, device="meta")
    return weight.to(dtype)


_HEADS, _CLASSIFIES = ("score", "classifier"), "ForTokenClassification"


def quantise(model: nn.Module, *, double_quant: bool, compute_dtype: torch.dtype) -> int:
    """Replaces a transformers model's linear layers in place; returns how many.

    Mirrors transformers integrations/bitsandbytes.py: replace_with_bnb_linear, with the modules to leave out as
    quantizers/base.py: get_modules_to_not_convert finds them (tied weights, the last module, the output embedding,
    modules kept in fp32). Of a head with a bias transformers leaves out the bias alone, and packs the layer, which peft
    then fails to train (peft/utils/constants.py: SEQ_CLS_HEADS): those who train it name it in llm_int8_skip_modules.
    """
    heads = _HEADS if type(model).__name__.endswith(_CLASSIFIES) else ()
    kept = [*heads, *get_keys_to_not_convert(model), *(getattr(model, "_keep_in_fp32_modules", None) or ())]
    found = [
        (name, module)
        for name, module in model.named_modules()
        if (isinstance(module, Conv1D) or type(module) is nn.Linear) and should_convert_module(name, kept)
    ]
    for name, module in found:
        model.set_submodule(name, Linear4bitMeta(module, double_quant=double_quant, compute_dtype=compute_dtype))
    return len(found)
