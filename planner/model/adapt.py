"""Wraps a built model with the real `peft` library, on the meta device."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.model.adapter import BESIDE, Adapter
from gpu_plan.planner.model.build.lean.imports import lean_imports
from gpu_plan.planner.model.build.lean.torchao import without_torchao
from gpu_plan.planner.model.build.quiet_logs import quiet_logs
from gpu_plan.planner.model.build.specs import parameter_specs
from gpu_plan.planner.model.build.value_head import HEAD
from gpu_plan.planner.model.quantization import Method, Scheme, Target, parse_quantize
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.workload.adapters import adapters_on

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


def adapt(
    model: nn.Module,
    spec: ModelSpec,
    adapter: Adapter,
    *,
    stored: Scheme | None = None,
    target: Target | None = None,
) -> Adapted:
    """Freezes `model` and puts adapters around its target modules; changes it in place.

    `spec`: of the model as built. `stored`: how its checkpoint is quantised, where it is: GPTQ and AWQ models are
    trained as they are. `target`: the GPU whose kernels run. The result's counts all elements of the base, stored in 4
    bits or not, and of the adapters. UsageError when no module matches the targets, InputError when `peft` is absent or
    refuses the model.
    """
    peft = _library()
    valued = getattr(model, HEAD, None)
    if valued is not None:
        delattr(model, HEAD)  # it is put on afterwards, and trained whole
    with warnings.catch_warnings(), torch.device("meta"), without_torchao():
        warnings.simplefilter("ignore")
        names = [name for name, module in model.named_modules() if _is_linear(module)]
        scheme = _base(adapter, stored)
        quantised = 0 if scheme is None else _quantised(model, spec, adapter, scheme, target)
        config = _lora_config(peft, model, adapter)
        with _one_line(spec, adapter, names):
            wrapped: Any = peft.get_peft_model(model, config)
        for number in range(adapter.beside):
            _add_frozen(wrapped, f"{BESIDE[1:]}{number}", config)
    if valued is not None:
        setattr(model, HEAD, valued)
    if adapter.peft.quantises:
        setattr(wrapped, KBIT, True)
    wrapped.train()
    return Adapted(model=wrapped, spec=_spec_of(wrapped, spec, adapter, _targets(wrapped), quantised, scheme))


def _add_frozen(wrapped: Any, name: str, config: Any) -> None:
    """Another adapter of the same shape, which is switched to and never trained; its weights are fp32 as the first's.

    peft mixed_model and peft_model: load_adapter makes a loaded adapter so (autocast_adapter_dtype).
    """
    wrapped.add_adapter(name, config)
    for key, parameter in wrapped.named_parameters():
        if f".{name}." in key:
            parameter.requires_grad_(False)
    wrapped.set_adapter("default")


def _library() -> Any:
    try:
        # Where bitsandbytes is installed peft imports it, and it tells what it lacks.
        with lean_imports(), quiet_logs("bitsandbytes"):
            import peft
    except ImportError:
        raise InputError("--peft needs the peft library: pip install 'gpu-plan[peft]'") from None
    return peft


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _base(adapter: Adapter, stored: Scheme | None) -> Scheme | None:
    """How the frozen base is stored; None for plain weights."""
    if base := adapter.base or adapter.peft.traits.base:
        return parse_quantize(base)
    return stored if stored is not None and stored.method in (Method.GPTQ, Method.AWQ) else None


def _quantised(model: nn.Module, spec: ModelSpec, adapter: Adapter, scheme: Scheme, target: Target | None) -> int:
    from peft import prepare_model_for_kbit_training
    from transformers import PreTrainedModel

    from gpu_plan.planner.model.linear4bit import quantise as quantise_4bit
    from gpu_plan.planner.model.quantization.apply import quantise, tell_configs
    from gpu_plan.planner.model.quantization.layers.experts import pack_experts

    if not isinstance(model, PreTrainedModel):
        raise InputError(
            f"{spec.id}: --peft {adapters_on(quantised=True)} quantises transformers models, and {spec.class_name}"
            " is not one"
        )
    compute = getattr(torch, adapter.compute_dtype)
    if scheme.method is Method.BNB_4BIT:  # NF4 and FP4 store alike
        count = quantise_4bit(model, double_quant=adapter.double_quant, compute_dtype=compute)
        if count == 0:
            raise InputError(f"{spec.id}: {spec.class_name} has no linear layer that bitsandbytes would quantise")
        if adapter.pack_experts:
            pack_experts(model, double_quant=adapter.double_quant, dtype=compute)
    else:
        count = quantise(model, scheme, target=target, training=True, dtype=compute).layers
    tell_configs(model, compute)
    if adapter.peft.quantises:
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
    if any(getattr(module, "is_quantised", False) for module in model.modules()):
        from gpu_plan.planner.model.quantization.adapters import wrappings

        config._register_custom_module(wrappings())
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


def _spec_of(
    wrapped: nn.Module,
    base: ModelSpec,
    adapter: Adapter,
    targets: tuple[str, ...],
    layers: int,
    scheme: Scheme | None,
) -> ModelSpec:
    parameters = tuple(parameter_specs(wrapped))
    trained = sum(p.numel for p in parameters if p.trainable and p.tied_to is None)
    notes = [
        f"{adapter.peft} of rank {adapter.rank} on {', '.join(targets)}: the base is frozen, adapters are made in fp32"
    ]
    if scheme is not None:
        notes += _stored_notes(wrapped, parameters, adapter, scheme, layers)
    return replace(
        base,
        parameters=parameters,
        num_parameters=base.num_parameters + trained,
        trainable_parameters=trained,
        adapted=targets,
        notes=(*(note for note in base.notes if scheme is None or "is ignored: full weights" not in note), *notes),
    )


def _stored_notes(
    wrapped: nn.Module, parameters: tuple[ParameterSpec, ...], adapter: Adapter, scheme: Scheme, layers: int
) -> list[str]:
    """How the base is stored, and what is not."""
    rest = sum(p.numel for p in parameters if is_floating(p.dtype) and not p.trainable and p.tied_to is None)
    if scheme.method is Method.BNB_4BIT:
        scales = "uint8 scales, fp32 scales of those" if adapter.double_quant else "fp32 scales"
        return [
            f"{layers} linear layers are stored as bitsandbytes {scheme.number.upper()} with {scales} (shown as"
            f" buffers); a product dequantises the whole weight; the rest, {rest:.2e} elements, is not packed"
        ]
    kernel = next(
        (module.kernel for module in wrapped.modules() if getattr(module, "is_quantised", False)), "its own kernel"
    )
    if scheme.method is Method.INT8:
        kept = f"the rest, {rest:.2e} elements, is not packed"
    else:
        kept = f"the rest, {rest:.2e} elements, stays in {adapter.compute_dtype}"
    return [f"{layers} linear layers are stored as {scheme.word} and multiplied by {kernel}; {kept}"]
