"""Experts held as one parameter of three dimensions, packed into 4 bits, on the meta device.

bitsandbytes 0.50.2 nn/parametrize.py: replace_parameter_4bit, which Unsloth's and axolotl's loaders use in their own
ways: the parameter is unpacked whole whenever it is asked for, once in a forward of its module. What autograd saves of
a product with it stands until backward, which only activation checkpointing prevents.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from gpu_plan.planner.model.linear4bit import BLOCK, SCALE_BLOCK
from gpu_plan.planner.units import ceil_div


class Packed(nn.Module):
    """Bnb4bitParametrization: the scales are buffers; asked for its value it makes the whole of it."""

    is_quantised = True

    def __init__(self, shape: torch.Size, *, double_quant: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape, self.dtype = shape, dtype
        blocks = ceil_div(shape.numel(), BLOCK)
        self._keep("code", 16, torch.float32)
        if double_quant:
            self._keep("absmax", blocks, torch.uint8)
            self._keep("offset", 1, torch.float32)
            self._keep("nested_absmax", ceil_div(blocks, SCALE_BLOCK), torch.float32)
            self._keep("nested_code", 256, torch.float32)
        else:
            self._keep("absmax", blocks, torch.float32)
        self.double_quant = double_quant

    def _keep(self, name: str, numel: int, dtype: torch.dtype) -> None:
        self.register_buffer(name, torch.empty(numel, dtype=dtype, device="meta"), persistent=False)

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        """The whole parameter, without a graph."""
        with torch.no_grad():
            if self.double_quant:
                scales: Any = torch.empty(ceil_div(self.shape.numel(), BLOCK), dtype=torch.float32, device="meta")
                scales += self.offset
            return torch.empty(self.shape, dtype=self.dtype, device="meta")


def fused_experts(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Modules with frozen parameters of three dimensions, and their names: what bitsandbytes' layers leave alone.

    axolotl monkeypatch/moe_quant.py takes a loaded tensor for experts by its dimensions and `expert` in its name.
    """
    return [
        (module, name)
        for path, module in model.named_modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dim() >= 3 and "expert" in f"{path}.{name}".lower()
    ]


def pack_experts(model: nn.Module, *, double_quant: bool, dtype: torch.dtype) -> int:
    """Packs all fused experts in place; returns how many parameters they were."""
    found = fused_experts(model)
    for module, name in found:
        shape = getattr(module, name).shape
        packed = torch.empty(ceil_div(shape.numel(), 2), 1, dtype=torch.uint8, device="meta")
        setattr(module, name, nn.Parameter(packed, requires_grad=False))
        unpacked = Packed(shape, double_quant=double_quant, dtype=dtype)
        parametrize.register_parametrization(module, name, unpacked, unsafe=True)
        module.register_forward_pre_hook(_caches)
        module.register_forward_hook(_forgets, always_call=True)
    return len(found)


def _caches(*_: Any) -> None:
    parametrize._cache_enabled += 1


def _forgets(*_: Any) -> None:
    parametrize._cache_enabled = max(0, parametrize._cache_enabled - 1)
    if not parametrize._cache_enabled:
        parametrize._cache = {}
