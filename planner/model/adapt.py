"""Wraps a built model with the real `peft` library, on the meta device."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from planner.dtypes import is_floating
from planner.errors import InputError, UsageError
from planner.model.adapter import Adapter
from planner.model.build import parameter_specs
from planner.model.quiet_imports import without_torchao
from planner.model.spec import ModelSpec
from planner.nearest import did_you_mean
from planner.workload import Peft

KBIT = "_plan_kbit"
"""Attribute of a model that went through prepare_model_for_kbit_training."""
_TASKS = {
    "ForCausalLM": "CAUSAL_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
}
"""peft task types by the end of the class name; classification heads are trained as copies (modules_to_save)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """A wrapped model and what it is."""

    model: nn.Module
    spec: ModelSpec


def adapt(model: nn.Module, spec: ModelSpec, adapter: Adapter) -> Adapted:
    """Freezes `model` and puts adapters around its target modules; changes it in place.

    `spec`: of the model as built. The result's counts all elements of the base, stored in 4 bits or not, and of the
    adapters. UsageError when no module matches the targets, InputError when `peft` is absent or refuses the model.
    """
    peft = _library()
    with warnings.catch_warnings(), torch.device("meta"), without_torchao():
        warnings.simplefilter("ignore")
        names = [name for name, module in model.named_modules() if _is_linear(module)]
        quantised = _quantised(model, spec, adapter) if adapter.peft is Peft.QLORA else 0
        config = _lora_config(peft, model, adapter)
        with _one_line(spec, adapter, names):
            wrapped: Any = peft.get_peft_model(model, config)
    if adapter.peft is Peft.QLORA:
        setattr(wrapped, KBIT, True)
    wrapped.train()
    return Adapted(model=wrapped, spec=_spec_of(wrapped, spec, adapter, _targets(wrapped), quantised))


def _library() -> Any:
    logger = logging.getLogger("bitsandbytes")  # where installed, peft imports it, and it tells what it lacks
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with without_torchao():
            import peft
    except ImportError:
        raise InputError("--peft needs the peft library: pip install 'gpu-plan[peft]'") from None
    finally:
        logger.setLevel(level)
    return peft


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _quantised(model: nn.Module, spec: ModelSpec, adapter: Adapter) -> int:
    from peft import prepare_model_for_kbit_training
    from transformers import PreTrainedModel

    from planner.model.linear4bit import quantise

    if not isinstance(model, PreTrainedModel):
        raise InputError(f"{spec.id}: --peft qlora quantises transformers models; {spec.class_name} is none")
    compute = getattr(torch, adapter.compute_dtype)
    count = quantise(model, double_quant=adapter.double_quant, compute_dtype=compute)
    if count == 0:
        raise InputError(f"{spec.id}: {spec.class_name} has no linear layer that bitsandbytes would quantise")
    prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return count


def _lora_config(peft: Any, model: nn.Module, adapter: Adapter) -> Any:
    task = next((task for end, task in _TASKS.items() if type(model).__name__.endswith(end)), None)
    config = peft.LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.rank,
        lora_dropout=adapter.dropout,
        target_modules=_wanted(model, adapter),
        task_type=task,
    )
    if adapter.peft is Peft.QLORA:
        from planner.model.linear4bit import Linear4bitMeta, Lora4bit

        config._register_custom_module({Linear4bitMeta: Lora4bit})
    return config


def _wanted(model: nn.Module, adapter: Adapter) -> list[str] | str:
    """The targets given, else peft's own choice for the model type, else all linear layers."""
    if adapter.targets == ("all-linear",):
        return "all-linear"
    if adapter.targets:
        return list(adapter.targets)
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    own = KNOWN.get(str(getattr(getattr(model, "config", None), "model_type", None)))
    if not own:
        return "all-linear"
    return own if isinstance(own, str) else list(own)


def _targets(wrapped: Any) -> tuple[str, ...]:
    found = wrapped.peft_config["default"].target_modules
    return (found,) if isinstance(found, str) else tuple(sorted(found))


@contextlib.contextmanager
def _one_line(spec: ModelSpec, adapter: Adapter, names: list[str]) -> Iterator[None]:
    """peft's refusals as one line; the nearest names of linear layers are offered."""
    try:
        yield
    except ValueError as problem:
        text = " ".join(str(problem).split())
        leaves = list(dict.fromkeys(name.rpartition(".")[2] for name in names))
        if "not found in the base model" in text or "No modules were targeted" in text:
            wanted = ",".join(adapter.targets)
            hint = did_you_mean(adapter.targets[0], leaves, limit=1) if adapter.targets else ""
            offered = ", ".join(leaves[:12])
            raise UsageError(
                f"--lora-targets {wanted}: matches no module of {spec.class_name}; it has {offered}.{hint}"
            ) from None
        if "all-linear" in text and not adapter.targets:
            raise UsageError(
                f"{spec.class_name}: name the modules to adapt with --lora-targets, such as {', '.join(leaves[:4])}"
            ) from None
        raise UsageError(f"--lora-targets {','.join(adapter.targets)}: peft refuses: {text[:200]}") from None


def _spec_of(wrapped: nn.Module, base: ModelSpec, adapter: Adapter, targets: tuple[str, ...], layers: int) -> ModelSpec:
    parameters = tuple(parameter_specs(wrapped))
    trained = sum(p.numel for p in parameters if p.trainable and p.tied_to is None)
    notes = [
        f"{adapter.peft} of rank {adapter.rank} on {', '.join(targets)}: the base is frozen, adapters are made in fp32"
    ]
    if layers:
        rest = sum(p.numel for p in parameters if is_floating(p.dtype) and not p.trainable and p.tied_to is None)
        scales = "uint8 scales, fp32 scales of those" if adapter.double_quant else "fp32 scales"
        notes.append(
            f"{layers} linear layers are stored as bitsandbytes NF4 with {scales} (shown as buffers); a product"
            f" dequantises the whole weight, and prepare_model_for_kbit_training keeps the rest, {rest:.2e} elements,"
            " in fp32"
        )
    return replace(
        base,
        parameters=parameters,
        num_parameters=base.num_parameters + trained,
        trainable_parameters=trained,
        adapted=targets,
        notes=(*base.notes, *notes),
    )
