"""What a captured script's models are, in a plan's words: parameters, buffers, identity, precision, attention."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.capture.answers.quantised import unpacked
from gpu_plan.planner.capture.request import OptimizerFacts
from gpu_plan.planner.capture.watch.names import other_name
from gpu_plan.planner.capture.watch.observe import Observed, planned_name
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.trace.events import ParameterInfo
from gpu_plan.planner.trace.setup.parameters import buffer_sizes, parameter_infos
from gpu_plan.planner.workload.precisions import PLAIN_PRECISION, mixed_in, pure_in


def parameters_of(models: list[nn.Module]) -> list[ParameterInfo]:
    """Of all models, in the order in which the recorder numbers them."""
    infos = parameter_infos(models[0])
    for number, other in enumerate(models[1:], 1):
        prefix = other_name(number)
        for info in parameter_infos(other):
            module = f"{prefix}.{info.module}" if info.module else prefix
            infos.append(replace(info, name=f"{prefix}.{info.name}", module=module))
    return infos


def flat_of(models: list[nn.Module]) -> str:
    """The name of a parameter of which two or more others are parts; empty where there is none.

    A sharding of the script's own keeps parameters so: torch counts each twice, and no strategy here is it.
    """
    parts: dict[int, dict[int, tuple[str, nn.Parameter]]] = {}
    for model in models:
        for name, parameter in model.named_parameters():
            if type(parameter.data) in (torch.Tensor, nn.Parameter):
                storage = parameter.untyped_storage()._cdata
                parts.setdefault(storage, {})[id(parameter)] = (name, parameter)
    for sharing in parts.values():
        sizes = {name: parameter.numel() for name, parameter in sharing.values()}
        whole = max(sizes, key=lambda name: sizes[name])
        if len(sizes) > 2 and sum(sizes.values()) - sizes[whole] <= sizes[whole]:
            return whole
    return ""


def buffers_of(models: list[nn.Module]) -> list[tuple[str, int]]:
    sizes = buffer_sizes(models[0])
    for number, other in enumerate(models[1:], 1):
        sizes += [(f"{other_name(number)}.{name}", size) for name, size in buffer_sizes(other)]
    return sizes


def config_of(model: nn.Module) -> str:
    """Of a model of transformers with no more in it than its class has; empty for any other."""
    config: Any = getattr(model, "config", None)
    of_transformers = type(model).__module__.startswith("transformers.") and hasattr(config, "to_json_string")
    if not of_transformers or getattr(model, "peft_config", None):
        return ""
    return str(config.to_json_string(use_diff=False))


def spec_of_all(models: list[nn.Module], script: str) -> ModelSpec:
    """The first model's identity, with the parameters of all."""
    spec = spec_of(models[0], model_id=script)
    spec = replace(spec, num_parameters=spec.num_parameters + unpacked(models[0]))
    for number, model in enumerate(models[1:], 1):
        other = spec_of(model, model_id=script)
        prefix = other_name(number)
        renamed = tuple(
            replace(p, name=f"{prefix}.{p.name}", tied_to=None if p.tied_to is None else f"{prefix}.{p.tied_to}")
            for p in other.parameters
        )
        spec = replace(
            spec,
            class_name=f"{spec.class_name} + {other.class_name}",
            parameters=spec.parameters + renamed,
            num_parameters=spec.num_parameters + other.num_parameters,
            trainable_parameters=spec.trainable_parameters + other.trainable_parameters,
        )
    return spec


def called_parameters(models: list[nn.Module]) -> int:
    """Parameters of the models that a training step calls: of each of which something is trained."""
    trained = [model for model in models if any(parameter.requires_grad for parameter in model.parameters())]
    owned: dict[int, int] = {id(parameter): parameter.numel() for model in trained for parameter in model.parameters()}
    return sum((*owned.values(), *map(unpacked, trained)))


def notes_on(observed: Observed, models: list[nn.Module], left_out: int, evaluators: int) -> tuple[str, ...]:
    found = []
    if evaluators:
        found.append(f"{evaluators} evaluations of sentence-transformers before the first step were not run")
    if left_out:
        found.append(
            f"{left_out} evaluation passes before the first step were not run: each has the shapes of one that was"
        )
    if observed.compiled:
        found.append("the script compiles its model: the step is counted as it is written, not as inductor fuses it")
    if len(models) > 1:
        names = ", ".join(type(model).__name__ for model in models)
        found.append(f"{len(models)} models stand on the device in a step ({names}): the parameters of all are counted")
    return tuple(found)


def upper_bound(masks: int) -> tuple[str, ...]:
    if not masks:
        return ()
    return ("a mask that follows from the model's values selects every element: an upper bound of what it selects",)


def one_name(optimizers: tuple[OptimizerFacts, ...]) -> str | None:
    """The `--optimizer` that all of them are; None where one has no name, or they differ."""
    names = {planned_name(made) for made in optimizers}
    return names.pop() if len(names) == 1 else None


def precision_of(models: list[nn.Module], autocast: str | None) -> str:
    """As `--precision` names what parameters are stored in and forward computes in."""
    trained = [p.dtype for model in models for p in model.parameters() if p.requires_grad and p.is_floating_point()]
    if trained and all(dtype is torch.float16 for dtype in trained):
        raise InputError(
            "its trained weights are in float16 (model.half()): no --precision trains so; leave them in float32 under"
            " fp16's autocast, or train them in bfloat16"
        )
    if trained and all(dtype is torch.bfloat16 for dtype in trained):
        return pure_in("bfloat16")  # also under autocast: nothing of it is kept in fp32
    if autocast is not None:
        return mixed_in(autocast)
    base = _adapted(models)
    if base == "float16":
        raise InputError(
            "the frozen weights are in float16 and nothing opens autocast: no --precision computes so; load them in"
            " bfloat16, or train under fp16's autocast"
        )
    return pure_in(base) if base else PLAIN_PRECISION


def in_float8(module: nn.Module) -> bool:
    """Whether a layer is torchao's, Transformer Engine's or MS-AMP's."""
    home = type(module).__module__
    return home.startswith(("torchao.float8", "transformer_engine", "msamp"))


def _adapted(models: list[nn.Module]) -> str:
    """The 16-bit type of the frozen base under peft's adapters, which are in fp32 themselves; empty without one."""
    frozen: dict[torch.dtype, int] = {}
    for model in models:
        if getattr(model, "peft_config", None):
            for parameter in model.parameters():
                if not parameter.requires_grad and parameter.is_floating_point():
                    frozen[parameter.dtype] = frozen.get(parameter.dtype, 0) + parameter.numel()
    most = max(frozen, key=frozen.__getitem__, default=torch.float32)
    return "" if most.itemsize != 2 else str(most).removeprefix("torch.")


def attention_of(config: Any) -> str:
    name = getattr(config, "_attn_implementation", None) or "sdpa"
    flash = name == "flash_attention_2" or name.endswith("flash-attn3")
    return "flash" if flash else "eager" if name == "eager" else "sdpa"
