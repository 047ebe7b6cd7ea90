"""Puts FP8 and MXFP4 layers into a model: through transformers' own quantizers, which need no GPU for that."""

import inspect
from typing import Any
from unittest import mock

import torch
from torch import nn
from transformers.integrations import finegrained_fp8, moe
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer
from transformers.quantizers.quantizers_utils import should_convert_module
from transformers.utils.quantization_config import FineGrainedFP8Config

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.quiet_logs import quiet_logs
from gpu_plan.planner.model.quantization.layers.fp8 import ChannelFp8Meta, Fp8LinearMeta, stand_in, use_meta_kernels
from gpu_plan.planner.model.quantization.layers.mxfp4 import replace
from gpu_plan.planner.model.quantization.scheme import FP8_CAPABILITY, Scheme, Target
from gpu_plan.planner.model.quantization.selection import chosen

MXFP4_CAPABILITY = (7, 5)
"""quantizer_mxfp4.py: validate_environment."""
DEQUANTISED = "torch aten: linear, on weights dequantised while loading"
_TRITON = "kernels-community/finegrained-fp8 matmul_2d, matmul_grouped (transformers integrations/finegrained_fp8.py)"
_DEEPGEMM = "deepseek-ai/DeepGEMM through transformers integrations/deepgemm.py: deepgemm_fp8_fp4_linear"
_MXFP4 = "triton-lang/triton python/triton_kernels/matmul_ogs.py through transformers integrations/mxfp4.py"

Replaced = tuple[int, int, str, list[str]]


def replace_fp8(model: Any, scheme: Scheme, target: Target) -> Replaced:
    """transformers' FineGrainedFP8HfQuantizer on the meta device, the plan for tensor parallel too; full weights where
    the GPU has no FP8."""
    if not target.reaches(FP8_CAPABILITY):
        return _dequantised("FP8", FP8_CAPABILITY, target)
    before = {name: parameter.numel() for name, parameter in model.named_parameters()}
    config = dict(scheme.config) or {
        "quant_method": "fp8",
        "activation_scheme": scheme.activations or "dynamic",
        "weight_block_size": scheme.block,
    }
    quantizer = FineGrainedFP8HfQuantizer(FineGrainedFP8Config.from_dict(config), pre_quantized=True)
    with quiet_logs(), mock.patch.object(finegrained_fp8, "use_experts_implementation", _wrapped_once):
        _refused_in_one_line(quantizer, model, scheme)
    use_meta_kernels()
    layers = elements = 0
    for name, module in model.named_modules():
        stand_in(module, target)
        if getattr(module, "is_quantised", False):
            layers += 1
            elements += sum(before.get(f"{name}.{own}", 0) for own, _ in module.named_parameters(recurse=False))
    linears = [module for module in model.modules() if isinstance(module, Fp8LinearMeta)]
    deepgemm = bool(linears) and linears[0].quantises_first
    return layers, elements, _DEEPGEMM if deepgemm else _TRITON, []


def _wrapped_once(*, experts_class: type[nn.Module], **options: Any) -> type[nn.Module]:
    """transformers wraps its one class of FP8 experts anew for every layer, around what it wrapped for the one before:
    the sixtieth runs sixty, and those of the next model all of them (integrations/finegrained_fp8.py:
    replace_with_fp8_linear). Here each wraps the class as it is written, to the same values."""
    for name in ("__init__", "forward"):
        setattr(experts_class, name, inspect.unwrap(getattr(experts_class, name)))
    wrapped: type[nn.Module] = moe.use_experts_implementation(experts_class=experts_class, **options)
    return wrapped


def _refused_in_one_line(quantizer: FineGrainedFP8HfQuantizer, model: Any, scheme: Scheme) -> None:
    try:
        quantizer._process_model_before_weight_loading(model)
        quantizer.update_parallel_plan(model, model.tp_plan)
    except (AssertionError, AttributeError, KeyError, ValueError, TypeError, NotImplementedError) as problem:
        why = " ".join(str(problem).split())[:200]
        raise InputError(f"--quantize {scheme.word}: {type(model).__name__} cannot be stored so: {why}") from None


def replace_channel_fp8(model: Any, scheme: Scheme, target: Target) -> Replaced:
    """integrations/compressed_tensors.py: replace_with_compressed_tensors_fp8_linear (use_optimized_inference)."""
    if not target.reaches(FP8_CAPABILITY):
        return _dequantised("FP8", FP8_CAPABILITY, target)
    elements = 0
    found = list(chosen(model, scheme))
    for name, module in found:
        assert isinstance(module, nn.Linear)
        with torch.device("meta"):
            made = ChannelFp8Meta(module.in_features, module.out_features, has_bias=module.bias is not None)
        made.bias = module.bias
        made.stored_scales = module.out_features if scheme.block or not scheme.config else 1
        elements += module.in_features * module.out_features
        model.set_submodule(name, made)
    note = (
        "FP8 of compressed-tensors stays FP8 with CompressedTensorsConfig(use_optimized_inference=True);"
        " experts in one tensor are dequantised by transformers 5.23"
    )
    return len(found), elements, ChannelFp8Meta.kernel, [note]


def replace_mxfp4(model: Any, scheme: Scheme, target: Target) -> Replaced:
    """integrations/mxfp4.py: replace_with_mxfp4_linear."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, GptOssMLP)]
    if not found:
        raise InputError(
            f"--quantize mxfp4: {type(model).__name__} has none of gpt-oss's experts, which alone are stored so"
        )
    if not target.reaches(MXFP4_CAPABILITY):
        return _dequantised("MXFP4", MXFP4_CAPABILITY, target)
    skip = None if scheme.skip is None else list(scheme.skip)
    kept = HfQuantizer.get_modules_to_not_convert(model, skip, model._keep_in_fp32_modules)
    layers = elements = 0
    for name, module in found:
        if should_convert_module(f"{name}.experts", kept):
            elements += module.experts.gate_up_proj.numel() + module.experts.down_proj.numel()
            model.set_submodule(name, replace(module, model.config))
            layers += 1
    return layers, elements, _MXFP4, []


def _dequantised(what: str, needed: tuple[int, int], target: Target) -> Replaced:
    has = "a CPU" if target.capability is None else ".".join(map(str, target.capability))
    wants = ".".join(map(str, needed))
    note = f"{what} needs compute capability {wants}; on {has} transformers dequantises the weights while it loads them"
    return 0, 0, DEQUANTISED, [note]
