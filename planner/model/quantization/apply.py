"""Puts quantised layers into a model that stands on the meta device, as transformers does while it loads one."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.quantization.gguf.apply import replace_gguf
from gpu_plan.planner.model.quantization.layers.base import entry, sizes_of
from gpu_plan.planner.model.quantization.layers.compressed import CompressedIntMeta
from gpu_plan.planner.model.quantization.layers.floats import (
    DEQUANTISED,
    replace_channel_fp8,
    replace_fp8,
    replace_mxfp4,
)
from gpu_plan.planner.model.quantization.layers.four_bit import KERNEL, Inference4bitMeta
from gpu_plan.planner.model.quantization.layers.int8 import Linear8bitMeta
from gpu_plan.planner.model.quantization.layers.packed_choice import packed_class
from gpu_plan.planner.model.quantization.layers.packed_older import ExllamaMeta, shared_buffer
from gpu_plan.planner.model.quantization.layers.torchao_weights import torchao_class
from gpu_plan.planner.model.quantization.scheme import Method, QuantisedFacts, Scheme, Target
from gpu_plan.planner.model.quantization.selection import chosen
from gpu_plan.planner.model.source.headers import StoredTensor

_TRANSFORMERS_NAMES = {
    Method.INT8: "bitsandbytes",
    Method.BNB_4BIT: "bitsandbytes",
}
"""`quantization_method` where it is not the method's own name."""


def quantise(
    model: nn.Module,
    scheme: Scheme,
    *,
    target: Target | None = None,
    training: bool = False,
    dtype: torch.dtype | None = None,
) -> QuantisedFacts:
    """Replaces layers of a transformers model on the meta device, in place.

    `target`: the GPU whose kernels run. `training`: as a frozen base for adapters. `dtype`: in which the model is
    loaded, where it was built in another. The model's parameters and buffers
    are then those that stand on the GPU; what is not quantised keeps its type. InputError in one line where the model
    cannot be stored so.
    """
    if not isinstance(model, PreTrainedModel):
        raise InputError(
            f"--quantize {scheme.word}: only transformers models are quantised, not {type(model).__name__}"
        )
    gpu = target or Target()
    before = _elements(model)
    if dtype is not None:
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype) if parameter.is_floating_point() else parameter.data
    layers, elements, kernel, notes = _REPLACE[scheme.method](model, scheme, gpu, training)
    if not layers and kernel != DEQUANTISED:
        raise InputError(f"--quantize {scheme.word}: {type(model).__name__} has no layer that {scheme.method} stores")
    _mark(model, scheme)
    for module in model.modules():
        if getattr(module, "is_quantised", False):
            module.requires_grad_(False)
    return QuantisedFacts(
        scheme=scheme,
        layers=layers,
        parameters=before,
        quantised_parameters=elements,
        resident_bytes=resident_bytes(model),
        checkpoint=checkpoint_of(model),
        kept=tuple(_kept(model)),
        kernel=kernel,
        notes=tuple(notes),
    )


Replaced = tuple[int, int, str, list[str]]
"""Layers, elements, kernel, notes."""


def _replace_linears(
    model: Any, scheme: Scheme, make: Callable[[nn.Module, torch.dtype], nn.Module], kernel: str, notes: list[str]
) -> Replaced:
    elements = 0
    found = list(chosen(model, scheme))
    for name, module in found:
        try:
            made = make(module, module.weight.dtype)
        except InputError as problem:
            raise InputError(f"{name}: {problem}") from None
        elements += math.prod(sizes_of(module))
        model.set_submodule(name, made)
    return len(found), elements, kernel, notes


def _int8(model: Any, scheme: Scheme, target: Target, training: bool) -> Replaced:
    notes = [
        "LLM.int8(): one input column in 1000 is assumed to hold an activation of at least"
        f" {scheme.threshold:g} and takes the 16-bit path (Dettmers et al., section 4)"
    ]
    return _replace_linears(
        model,
        scheme,
        lambda linear, dtype: Linear8bitMeta(linear, target, threshold=scheme.threshold),
        Linear8bitMeta.kernel,
        notes if scheme.threshold > 0 else [],
    )


def _four_bit(model: Any, scheme: Scheme, target: Target, training: bool) -> Replaced:
    def make(linear: nn.Module, dtype: torch.dtype) -> nn.Module:
        compute = getattr(torch, scheme.compute_dtype) if scheme.compute_dtype else dtype
        return Inference4bitMeta(linear, scheme, target, compute)

    return _replace_linears(model, scheme, make, KERNEL, [])


def _packed(model: Any, scheme: Scheme, target: Target, training: bool) -> Replaced:
    kind = packed_class(scheme, target, training=training)
    replaced = _replace_linears(
        model, scheme, lambda linear, dtype: kind(linear, scheme, target, _half(dtype)), kind.kernel, []
    )
    if layers := [module for module in model.modules() if isinstance(module, ExllamaMeta)]:
        model.register_buffer("exllama_temp_dq", shared_buffer(layers), persistent=False)
    return replaced


def _half(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype in (torch.float16, torch.bfloat16) else torch.float16


def _torchao(model: Any, scheme: Scheme, target: Target, training: bool) -> Replaced:
    kind = torchao_class(scheme)
    return _replace_linears(model, scheme, lambda linear, dtype: kind(linear, scheme, target, dtype), kind.kernel, [])


def _compressed(model: Any, scheme: Scheme, target: Target, training: bool) -> Replaced:
    if scheme.number == "float":
        return replace_channel_fp8(model, scheme, target)
    note = "compressed-tensors unpacks its integers for each product here; transformers 5.23 keeps what it unpacked"
    return _replace_linears(
        model,
        scheme,
        lambda linear, dtype: CompressedIntMeta(linear, scheme, target, dtype),
        CompressedIntMeta.kernel,
        [note],
    )


def _fp8(model: Any, scheme: Scheme, target: Target, training: bool) -> Replaced:
    return replace_fp8(model, scheme, target)


def _mxfp4(model: Any, scheme: Scheme, target: Target, training: bool) -> Replaced:
    return replace_mxfp4(model, scheme, target)


def _gguf(model: Any, scheme: Scheme, target: Target, training: bool) -> Replaced:
    return replace_gguf(model, scheme, target)


_REPLACE: dict[Method, Callable[[Any, Scheme, Target, bool], Replaced]] = {
    Method.INT8: _int8,
    Method.BNB_4BIT: _four_bit,
    Method.GPTQ: _packed,
    Method.AWQ: _packed,
    Method.TORCHAO: _torchao,
    Method.COMPRESSED: _compressed,
    Method.FP8: _fp8,
    Method.MXFP4: _mxfp4,
    Method.GGUF: _gguf,
}


def tell_configs(model: nn.Module, dtype: torch.dtype) -> None:
    """Configs of a quantised model say so, and in which type it computes: by them FlashAttention casts fp32 queries.

    transformers quantizers/base.py: _assign_is_quantized; integrations/flash_attention.py: get_target_dtype, which
    otherwise takes the type of a weight, and a packed weight has none that computes.
    """
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.config._is_quantized = True
            module.config.dtype = dtype  # as from_pretrained has it: the model was built in another


def _mark(model: Any, scheme: Scheme) -> None:
    """transformers quantizers/base.py: HfQuantizer.preprocess_model and postprocess_model."""
    model.is_quantized = True
    model.quantization_method = _TRANSFORMERS_NAMES.get(scheme.method, str(scheme.method))
    if scheme.method is Method.INT8:
        model.is_loaded_in_8bit = True
    elif scheme.method is Method.BNB_4BIT:
        model.is_loaded_in_4bit = True


def _elements(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def resident_bytes(model: nn.Module) -> int:
    """Bytes of all parameters and buffers, each storage once."""
    found = {id(tensor): tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers())}
    return sum(found.values())


def checkpoint_of(model: nn.Module) -> dict[str, StoredTensor]:
    """Tensors of a checkpoint of this model, tied weights once, without what is not saved."""
    held: dict[str, StoredTensor] = {}
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        lead = f"{prefix}." if prefix else ""
        if hasattr(module, "checkpoint"):
            held |= {lead + name: stored for name, stored in module.checkpoint().items()}
            continue
        for name, tensor in _own_tensors(module):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                held[lead + name] = entry(tensor)
    return held


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(recurse=False)
    unsaved = module._non_persistent_buffers_set
    yield from ((name, buffer) for name, buffer in module.named_buffers(recurse=False) if name not in unsaved)


def _kept(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        plain = isinstance(module, nn.Linear | nn.Embedding | Conv1D)
        if plain and not getattr(module, "is_quantised", False):
            yield name
