"""What a built model is: its identity, its parameters by name, its counts. Needs no transformers."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from gpu_plan.planner.model.family import has_sequence, hidden_size_of, kind_of, usable_positions_of, vocab_size_of
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec

NOTES = "_plan_notes"
"""Attribute on a built module that keeps the builder's notes until `spec_of` reads them."""


def spec_of(model: nn.Module, *, model_id: str) -> ModelSpec:
    """Identity, parameters (every name, tied ones marked) and counts of a built model."""
    parameters = tuple(parameter_specs(model))
    owned = [parameter for parameter in parameters if parameter.tied_to is None]
    config = getattr(model, "config", None)
    return ModelSpec(
        id=model_id,
        class_name=type(model).__name__,
        config_class=type(config).__name__ if config is not None else None,
        model_type=getattr(config, "model_type", None),
        kind=kind_of(model),
        parameters=parameters,
        num_parameters=sum(parameter.numel for parameter in owned),
        trainable_parameters=sum(parameter.numel for parameter in owned if parameter.trainable),
        max_positions=usable_positions_of(model),
        vocab_size=vocab_size_of(config),
        hidden_size=hidden_size_of(config),
        can_checkpoint=can_checkpoint(model),
        has_sequence=has_sequence(model),
        notes=notes_of(model),
    )


def can_checkpoint(model: Any) -> bool:
    """Whether the class says so, as transformers or as diffusers (models/modeling_utils.py) spells it."""
    named = ("supports_gradient_checkpointing", "_supports_gradient_checkpointing")
    return any(bool(getattr(model, name, False)) for name in named)


def notes_of(model: nn.Module) -> tuple[str, ...]:
    """Notes that building left on the model."""
    return tuple(getattr(model, NOTES, ()))


def parameter_specs(model: nn.Module) -> Iterator[ParameterSpec]:
    """Every parameter under every name, in the order of `named_parameters`; a second name says what it is tied to."""
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        known = first.setdefault(id(parameter), name)
        yield ParameterSpec(
            name=name,
            shape=tuple(parameter.shape),
            dtype=str(parameter.dtype).removeprefix("torch."),
            trainable=parameter.requires_grad,
            tied_to=None if known == name else known,
        )
