"""Puts a GGUF file's types into a model."""

from pathlib import Path
from typing import Any

from torch import nn

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.model.quantization.gguf.file import PLAIN, GgufFile, GgufTensor, read_gguf_file
from gpu_plan.planner.model.quantization.gguf.layers import KERNEL, GgufEmbeddingMeta, GgufExpertsMeta, GgufLinearMeta
from gpu_plan.planner.model.quantization.gguf.names import candidates
from gpu_plan.planner.model.quantization.scheme import Scheme, Target

Replaced = tuple[int, int, str, list[str]]
PACKED_ARCHITECTURES = ("qwen35", "qwen35moe", "lfm2")
"""What transformers 5.23 keeps in blocks (integrations/gguf/gguf_conversion_mapping.py: GGUF_ARCHS)."""


def replace_gguf(model: Any, scheme: Scheme, target: Target) -> Replaced:
    """integrations/gguf/utils.py: replace_with_gguf_modules, by the file's own tensors.

    InputError where the file is not of this model.
    """
    if scheme.path is None:
        raise UsageError("--quantize gguf: names no file: write gguf:FILE")
    file = read_gguf_file(Path(scheme.path))
    plan, unknown = _plan(model, file, scheme.path)
    made: dict[int, nn.Parameter] = {}
    layers = elements = 0
    for name, module in list(model.named_modules()):
        stand_in = _stand_in(name, module, plan, target, made)
        if stand_in is not None:
            model.set_submodule(name, stand_in)
            layers += 1
            elements += sum(t.numel for own in _own(name, module) for t in plan.get(own, []) if t.type not in PLAIN)
    return layers, elements, KERNEL, _notes(file, unknown)


def _plan(model: Any, file: GgufFile, path: str) -> tuple[dict[str, list[GgufTensor]], list[str]]:
    """Tensors by the parameter that they make up, and those that are none of the model's."""
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}
    plan: dict[str, list[GgufTensor]] = {}
    unknown = []
    for name, tensor in file.tensors.items():
        own = next((candidate for candidate in candidates(name) if candidate in shapes), None)
        if own is None:
            unknown.append(name)
        else:
            plan.setdefault(own, []).append(tensor)
    _whole(model, plan, path, file.architecture)
    for own, tensors in plan.items():
        whole = tensors[0].shape
        if len(tensors) > 1:
            whole = (whole[0], sum(tensor.shape[1] for tensor in tensors), *whole[2:])
        if whole != shapes[own] and whole != tuple(reversed(shapes[own])):
            raise InputError(
                f"{path} is of another model: {own} is {list(whole)} in it and {list(shapes[own])} in the config"
            )
    return plan, unknown


def _whole(model: Any, plan: dict[str, list[GgufTensor]], path: str, architecture: str) -> None:
    """InputError where a matrix of the model has no tensor in the file."""
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    missing = [name for name, p in model.named_parameters() if p.dim() > 1 and name not in plan and name not in tied]
    if missing and len(missing) < len(plan):
        raise InputError(f"{path} has no tensor for {missing[0]} of {type(model).__name__}: is it of this model?")
    if missing:
        raise InputError(
            f"{path}: tensors of the architecture {architecture!r} are not matched with {type(model).__name__} yet"
        )


def _own(name: str, module: nn.Module) -> list[str]:
    return [f"{name}.{own}" for own, _ in module.named_parameters(recurse=False)]


def _stand_in(
    name: str, module: nn.Module, plan: dict[str, list[GgufTensor]], target: Target, made: dict[int, nn.Parameter]
) -> nn.Module | None:
    """The module that holds blocks; tied weights share theirs."""
    if name.endswith(".experts") and f"{name}.down_proj" in plan:
        return GgufExpertsMeta(module, {own: plan[f"{name}.{own}"] for own in ("gate_up_proj", "down_proj")})
    known = made.get(id(getattr(module, "weight", None)))
    if known is not None and type(module) is nn.Linear:
        return GgufLinearMeta(module, target, _unused(known), known)
    tensors = plan.get(f"{name}.weight")
    if not tensors or tensors[0].type in PLAIN:
        return None
    if type(module) is nn.Linear:
        stand_in: nn.Module = GgufLinearMeta(module, target, tensors[0], None)
    elif type(module) is nn.Embedding:
        stand_in = GgufEmbeddingMeta(module, tensors[0])
    else:
        return None
    blocks = stand_in.weight
    assert isinstance(blocks, nn.Parameter)
    made[id(module.weight)] = blocks
    return stand_in


def _unused(blocks: nn.Parameter) -> GgufTensor:
    return GgufTensor(shape=tuple(blocks.shape), type="tied", bytes=blocks.numel())


def _notes(file: GgufFile, unknown: list[str]) -> list[str]:
    notes = [f"GGUF: {len(file.tensors)} tensors, {file.bits_per_weight:.3f} bits per weight in the file"]
    if file.architecture not in PACKED_ARCHITECTURES:
        notes.append(
            f"transformers 5.23 dequantises GGUF files of {file.architecture} while it loads them; figures are those of"
            " weights left in their blocks"
        )
    if unknown:
        held = sum(file.tensors[name].bytes for name in unknown)
        notes.append(
            f"{len(unknown)} tensors of the file, {held:,} bytes, do not belong to the model, such as {unknown[0]}"
        )
    return notes
