"""Fused adapters of fms-acceleration around a 4-bit base, as far as memory goes.

Mirrored from foundation-model-stack/fms-acceleration plugins/fused-ops-and-kernels/src/fms_acceleration_foak:
fused_ops/unsloth_lora/bnb/fast_lora.py (LoRA_QKV, LoRA_W), fused_ops/unsloth_lora/utils.py (matmul_lora,
fast_dequantize) and models/utils.py (_build_fused_forwards). Custom functions have untyped contexts, hence Any.
"""

from collections.abc import Iterable, Iterator, Sequence
from types import MethodType
from typing import Any

import torch
from torch import nn

_QKV = ("q_proj", "k_proj", "v_proj")


def fuse_adapters(model: nn.Module) -> None:
    """Query, key and value run as one function, and so does the output projection."""
    for module in model.modules():
        if all(hasattr(getattr(module, name, None), "lora_A") for name in _QKV):
            _fuse_three(module)
        if hasattr(getattr(module, "o_proj", None), "lora_A"):
            _fuse_one(module.o_proj)


def _fuse_three(attention: Any) -> None:
    """The first of the three to be called computes all, the others hand out what is there."""
    made: dict[str, torch.Tensor] = {}
    layers = [getattr(attention, name) for name in _QKV]

    def forward(name: str) -> Any:
        def run(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
            if not made:
                made.update(zip(_QKV, _FusedAdapters.apply(x, layers, *_adapters(layers)), strict=True))
            return made.pop(name)

        return run

    for name, layer in zip(_QKV, layers, strict=True):
        layer.forward = MethodType(forward(name), layer)


def _fuse_one(layer: Any) -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        (out,) = _FusedAdapters.apply(x, [self], *_adapters([self]))
        made: torch.Tensor = out
        return made

    layer.forward = MethodType(run, layer)


def _adapters(layers: Iterable[Any]) -> Iterator[torch.Tensor]:
    for layer in layers:
        (name,) = layer.lora_A
        yield layer.lora_A[name].weight
        yield layer.lora_B[name].weight


def _dequantised(layer: Any, dtype: torch.dtype) -> torch.Tensor:
    """fast_dequantize: the weight first, then its scales, which die when it returns."""
    base = layer.base_layer
    weight = torch.empty(base.out_features, base.in_features, dtype=dtype, device="meta")
    absmax = torch.empty(base.scales, dtype=torch.float32, device="meta")
    absmax += base.offset
    return weight


class _FusedAdapters(torch.autograd.Function):
    """LoRA_QKV over three layers, LoRA_W over one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layers: Sequence[Any], *adapters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x.view(-1, x.shape[-1])
        outs, dropped = [], []
        for index, layer in enumerate(layers):
            weight = _dequantised(layer, x.dtype)
            out = torch.matmul(rows, weight.t())
            del weight
            kept = _dropout(layer, rows)
            a, b = adapters[2 * index].t(), adapters[2 * index + 1].t()
            out += (kept @ a.to(x.dtype)) @ (2.0 * b.to(x.dtype))
            outs.append(out.view(*x.shape[:-1], -1))
            dropped.append(kept)
            del out, kept
        ctx.layers = layers
        ctx.save_for_backward(x, *adapters, *dropped)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        layers = ctx.layers
        x, *rest = ctx.saved_tensors
        adapters, dropped = rest[: 2 * len(layers)], rest[2 * len(layers) :]
        rows = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
        made = []
        for index, (grad, kept) in enumerate(zip(rows, dropped, strict=True)):
            made += _adapter_gradients(kept, grad, adapters[2 * index], adapters[2 * index + 1])
        into: torch.Tensor | None = x.view(-1, x.shape[-1]) if len(layers) > 1 else None
        for index, (layer, grad, kept) in enumerate(zip(layers, rows, dropped, strict=True)):
            weight = _dequantised(layer, x.dtype)
            if into is None:
                into = grad @ weight
            elif index:
                into += grad @ weight
            # LoRA_QKV writes the first product over its input, which it saved.
            del weight
            _add_through(into, grad, kept, adapters[2 * index], adapters[2 * index + 1])
        assert into is not None
        return into.view(x.shape), None, *made


def _dropout(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """native_dropout, whose mask nobody keeps; nothing where the layer has none."""
    (dropout,) = layer.lora_dropout.values()
    if isinstance(dropout, nn.Identity):
        return x
    out = torch.empty_like(x)
    assert torch.empty(x.shape, dtype=torch.bool, device="meta").shape == out.shape
    return out


def _adapter_gradients(kept: torch.Tensor, grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """Of both matrices, in the type of the computation; autocast casts them anew for each product."""
    dtype = grad.dtype
    of_a = kept.t() @ (grad @ b.to(dtype))
    of_b = (a.to(dtype) @ kept.t()) @ grad
    return [of_a.t(), of_b.t()]


def _add_through(into: torch.Tensor, grad: torch.Tensor, kept: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """What comes back through the adapter, where dropout let something pass."""
    dtype = grad.dtype
    into += (kept != 0) * (grad @ b.to(dtype) @ (2.0 * a.to(dtype)))
