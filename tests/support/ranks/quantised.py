"""A real model whose linear layers are bitsandbytes' NF4, packed so that FSDP1 can flatten them with the rest."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import bitsandbytes as bnb
import torch
from torch import nn
from transformers import BitsAndBytesConfig
from transformers.integrations.bitsandbytes import replace_with_bnb_linear
from transformers.quantizers.base import get_keys_to_not_convert

_LAYERS: Any = bnb.nn


def quantised(model: Any, dtype: torch.dtype) -> Any:
    """transformers' own replacement and bitsandbytes' layers, stored in the type of the rest, as sharding asks."""
    weights = {name: module.weight.data for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype, bnb_4bit_quant_storage=dtype
    )
    replace_with_bnb_linear(model, get_keys_to_not_convert(model), config)
    for name, module in model.named_modules():
        if isinstance(module, _LAYERS.Linear4bit):
            module.weight = _packed(weights[name], dtype, module)
    model.is_loaded_in_4bit = True
    return model


def _packed(weight: torch.Tensor, dtype: torch.dtype, module: nn.Module | None) -> Any:
    return _LAYERS.Params4bit(
        weight, requires_grad=False, compress_statistics=False, quant_type="nf4", quant_storage=dtype, module=module
    ).to("cpu")


def warm_up() -> None:
    """The library's tables, made at first use, are no part of the run."""
    _packed(torch.zeros(64, 64), torch.float32, None)


@contextlib.contextmanager
def asked_as_on_cuda() -> Iterator[None]:
    """peft tuners/lora/bnb.py asks for CUDA's autocast only; where the CPU's is on, a GPU run would have CUDA's."""
    asked = torch.is_autocast_enabled
    with mock.patch.object(torch, "is_autocast_enabled", lambda *device: asked(*(device or ("cpu",)))):
        yield
