"""Models that a script loads in 4 bits: bitsandbytes' layers on meta, as `--peft qlora` has them."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.errors import InputError


def four_bit(name: Any, config: Any) -> Any:
    """`config` where it asks for bitsandbytes' NF4, None where nothing is quantised.

    InputError in one line for every other way to quantise.
    """
    if config is None:
        return None
    values = config if isinstance(config, dict) else config.to_dict()
    if values.get("load_in_4bit") and values.get("bnb_4bit_quant_type", "fp4") == "nf4":
        return SimpleNamespace(
            double_quant=bool(values.get("bnb_4bit_use_double_quant")),
            compute_dtype=_dtype(values.get("bnb_4bit_compute_dtype") or torch.float32),
            original=config,
        )
    opens = values.get("dequantize") or getattr(config, "dequantize", False)
    if values.get("quant_method") == "mxfp4" and opens:
        return None  # transformers quantizers/quantizer_mxfp4.py: the weights are loaded in 16 bits
    method = "fp4" if values.get("load_in_4bit") else values.get("quant_method") or "8-bit"
    raise InputError(f"{name} is loaded with {method} weights: capture knows nf4 alone; name the model with --model")


def _dtype(value: Any) -> torch.dtype:
    made: torch.dtype = getattr(torch, value.removeprefix("torch.")) if isinstance(value, str) else value
    return made


def quantise_loaded(model: Any, config: Any) -> None:
    """Replaces linear layers in place and marks the model as transformers marks one that it quantised.

    transformers quantizers/base.py: HfQuantizer.preprocess_model and postprocess_model.
    """
    from gpu_plan.planner.model.linear4bit import quantise

    quantise(model, double_quant=config.double_quant, compute_dtype=config.compute_dtype)
    model.is_loaded_in_4bit = True
    model.is_quantized = True
    model.quantization_method = "bitsandbytes"
    model.config.quantization_config = config.original
    model.hf_quantizer = SimpleNamespace(
        is_trainable=True, is_serializable=lambda *_, **__: False, quantization_config=config.original
    )
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    when_imported("peft.tuners.lora.config", _register)


def _register(module: Any) -> None:
    """peft wraps our stand-in layers as it wraps bitsandbytes' own."""
    from gpu_plan.planner.model.linear4bit import Linear4bitMeta
    from gpu_plan.planner.model.quantization.adapters import Lora4bit

    init = module.LoraConfig.__post_init__

    def post_init(config: Any) -> None:
        init(config)
        config._register_custom_module({Linear4bitMeta: Lora4bit})

    module.LoraConfig.__post_init__ = post_init


def unpacked(model: nn.Module) -> int:
    """Elements that the model's 4-bit layers hold beyond those that their packed weights count."""
    layers = [module for module in model.modules() if getattr(module, "is_quantised", False)]
    return sum(layer.in_features * layer.out_features - layer.weight.numel() for layer in layers)
