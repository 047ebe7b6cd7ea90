"""Reads from a built model the places that wrapping strategies look for."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from gpu_plan.planner.model.family import hidden_size_of
from gpu_plan.planner.model.float8 import float8_linears
from gpu_plan.planner.trace.events import ModuleLayout
from gpu_plan.planner.trace.folding.blocks import repeated_blocks
from gpu_plan.planner.trace.parallel.tensor import TIED_APART, WRAPPED

_KEPT = "keep_full_weight"
"""transformers distributed/fsdp.py: ALL_FSDP_STYLES."""


def layout_of(model: nn.Module) -> ModuleLayout:
    """Blocks, embeddings and final norm of a model.

    Mirrors accelerate utils/fsdp_utils.py: fsdp2_prepare_model (embeddings and tail get units of their own),
    _find_final_norm, and utils/dataclasses.py: set_auto_wrap_policy (`_no_split_modules`).
    """
    names = {id(module): name for name, module in model.named_modules()}
    embedding = _call(model, "get_input_embeddings")
    head = _call(model, "get_output_embeddings")
    weights = [getattr(module, "weight", None) for module in (embedding, head)]
    blocks = tuple(_blocks(model))
    wrapped = getattr(model, WRAPPED, None) or {}
    return ModuleLayout(
        blocks=blocks,
        block_classes=tuple(type(model.get_submodule(name)).__name__ for name in blocks),
        input_embedding=names.get(id(embedding)) if embedding is not None else None,
        output_embedding=names.get(id(head)) if head is not None else None,
        final_norm=_final_norm(model, names),
        tied=(weights[0] is not None and weights[0] is weights[1]) or bool(getattr(model, TIED_APART, None)),
        hidden_size=hidden_size_of(getattr(model, "config", None)),
        float8_linears=float8_linears(model),
        wrapped=tuple(name for name, style in wrapped.items() if style != _KEPT),
        wrapped_whole=tuple(name for name, style in wrapped.items() if style == _KEPT),
        shared=tuple(_shared(model, {names.get(id(end), "") for end in (embedding, head) if end is not None})),
    )


def _shared(model: nn.Module, ends: set[str]) -> Iterator[str]:
    """The modules of each parameter that several hold themselves, but for one that only the `ends` share."""
    holders: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                holders.setdefault(id(parameter), []).append(name)
    yield from (" ".join(found) for found in holders.values() if len(found) > 1 and not set(found) <= ends)


def _blocks(model: nn.Module) -> list[str]:
    classes = set(getattr(model, "_no_split_modules", None) or ())
    found = [name for name, module in model.named_modules() if name and type(module).__name__ in classes]
    if found:
        return found
    return [f"{run.name}.{index}" for run in repeated_blocks(model) for index in range(len(run.signatures))]


def _call(model: nn.Module, name: str) -> Any:
    method = getattr(model, name, None)
    if method is None:
        return None
    try:
        return method()
    except (NotImplementedError, AttributeError):
        return None


def _final_norm(model: nn.Module, names: dict[int, str]) -> str | None:
    prefix = getattr(model, "base_model_prefix", "")
    base = getattr(model, prefix, None) if prefix else model
    if not isinstance(base, nn.Module):
        return None
    norms = [module for _, module in base.named_children() if "Norm" in type(module).__name__]
    return names.get(id(norms[-1])) if norms else None
