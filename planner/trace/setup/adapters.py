"""What is particular to a traced model with adapters: types that peft sees, scales of a quantised base."""

import functools

import torch
from torch import nn


def show_adapters(model: nn.Module, dtype: str | None) -> None:
    """Lets peft cast the inputs of adapters to `dtype`, whatever their weights are now; None: as peft itself does.

    peft tuners/tuners_utils.py: _cast_input_dtype is given the type of an adapter's weight before that is used.
    """
    for module in model.modules():
        cast = getattr(type(module), "_cast_input_dtype", None)
        if cast is None:
            continue
        vars(module).pop("_cast_input_dtype", None)
        if dtype is not None:
            vars(module)["_cast_input_dtype"] = functools.partial(_cast, cast, module, getattr(torch, dtype))


def _cast(cast: object, module: nn.Module, seen: torch.dtype, x: torch.Tensor, _: torch.dtype) -> torch.Tensor:
    assert callable(cast)
    out: torch.Tensor = cast(module, x, seen)
    return out


def quantisation_scales(model: nn.Module) -> set[int]:
    """Ids of the buffers that stand for a quantised weight's scales, which are no buffers of the real module."""
    return {
        id(buffer)
        for module in model.modules()
        if getattr(module, "is_quantised", False)
        for buffer in module.buffers(recurse=False)
    }
