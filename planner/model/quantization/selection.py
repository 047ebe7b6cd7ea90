"""Which modules a method quantises: transformers' own rules, on a built model on the meta device."""

import re
from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizers_utils import should_convert_module

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.quantization.compressed import targets
from gpu_plan.planner.model.quantization.scheme import Method, Scheme

_BLOCKS = (
    "transformer.h",
    "model.decoder.layers",
    "gpt_neox.layers",
    "model.layers",
    "model.language_model.layers",
    "h",
    "decoder.layers",
    "layers",
)
"""huggingface/optimum optimum/gptq/constants.py: BLOCK_PATTERNS."""


def chosen(model: Any, scheme: Scheme) -> Iterator[tuple[str, nn.Module]]:
    """Linear layers that `scheme` stores, by name."""
    if scheme.method is Method.GPTQ:
        return _in_blocks(model, scheme)
    if scheme.method is Method.COMPRESSED:
        return _targeted(model, scheme)
    return _not_skipped(model, scheme)


def _not_skipped(model: Any, scheme: Scheme) -> Iterator[tuple[str, nn.Module]]:
    """replace_with_bnb_linear, replace_with_awq_linear and TorchAoHfQuantizer.param_needs_quantization."""
    kept = HfQuantizer.get_modules_to_not_convert(
        model,
        None if scheme.skip is None else list(scheme.skip),
        getattr(model, "_keep_in_fp32_modules", None) and list(model._keep_in_fp32_modules),
        add_default_skips=scheme.method is Method.AWQ,
    )
    exact = scheme.method in (Method.INT8, Method.BNB_4BIT)
    for name, module in model.named_modules():
        if not should_convert_module(name, kept):
            continue
        linear = type(module) is nn.Linear if exact else isinstance(module, nn.Linear)
        if linear or (exact and isinstance(module, Conv1D)):
            yield name, module


def _in_blocks(model: Any, scheme: Scheme) -> Iterator[tuple[str, nn.Module]]:
    """optimum/gptq/quantizer.py: convert_model: plain linear layers of the model's blocks, all or those listed."""
    if type(model).main_input_name != "input_ids":
        raise InputError(f"{type(model).__name__}: GPTQ quantises models whose input is text alone (quantizer_gptq.py)")
    names = {name for name, _ in model.named_modules()}
    prefix = scheme.config.get("block_name_to_quantize") or next((name for name in _BLOCKS if name in names), None)
    if prefix is None or prefix not in names:
        raise InputError(f"{type(model).__name__}: GPTQ finds no blocks in it: none of {', '.join(_BLOCKS)}")
    inside = scheme.config.get("modules_in_block_to_quantize") or None
    listed = [name for group in inside for name in group] if inside else None
    dynamic = scheme.config.get("dynamic") or {}
    for name, module in model.named_modules():
        plain = type(module) is nn.Linear or isinstance(module, Conv1D)
        if not plain or not name.startswith(prefix) or any(_left_out(pattern, name) for pattern in dynamic):
            continue
        if listed is None or any(name.endswith(part) for part in listed):
            yield name, module


def _left_out(pattern: str, name: str) -> bool:
    """GPTQModel quantization/config.py: dynamic_get: `-:` before a pattern takes its modules out."""
    return pattern.startswith("-:") and re.match(pattern.removeprefix("-:"), name) is not None


def _targeted(model: Any, scheme: Scheme) -> Iterator[tuple[str, nn.Module]]:
    """compressed-tensors utils/match.py: match_named_modules.

    Without the linear layers whose class computes more than a product (Llama 4's router): in their place a plain one
    gives back something else, so that every checkpoint that runs ignores them, whether its config says so here or not.
    """
    wanted, ignored = targets(scheme), scheme.skip or ()
    head = () if scheme.config else ("lm_head",)
    for name, module in model.named_modules():
        plain = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
        meant = plain and matches(name, module, wanted)
        if meant and not matches(name, module, (*ignored, *head)):
            yield name, module


def matches(name: str, module: nn.Module, patterns: tuple[str, ...]) -> bool:
    """is_match: `re:` patterns from the name's start, else the name itself or the name of one of its classes."""
    classes = {kind.__name__ for kind in type(module).__mro__}
    return any(
        re.match(pattern.removeprefix("re:"), name) is not None
        if pattern.startswith("re:")
        else pattern == name or pattern in classes
        for pattern in patterns
    )
