"""What a built model is, as plain values: nothing here needs torch."""

import re
from typing import Any, Literal

from gpu_plan.planner.plain.values import dataclass

ModelKind = Literal[
    "dense",
    "moe",
    "encoder",
    "encoder-decoder",
    "vision",
    "audio",
    "multimodal",
    "state-space",
    "hybrid",
    "module",
]
"""Broad family, for display and for choosing training inputs; `module` is a user's own `nn.Module`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One parameter under one of its names."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """torch dtype without its prefix, e.g. `float32`."""
    trainable: bool
    tied_to: str | None = None
    """First name of the same storage when this name is a second one (a tied head)."""

    @property
    def numel(self) -> int:
        """Elements of the tensor."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Identity and parameters of a model; parameters in the order `named_parameters` gives them."""

    id: str
    class_name: str
    config_class: str | None
    """None for a factory's own module without a transformers config."""
    model_type: str | None
    kind: ModelKind
    parameters: tuple[ParameterSpec, ...]
    num_parameters: int
    """Elements, tied weights once."""
    trainable_parameters: int
    """Elements with a gradient, tied weights once."""
    max_positions: int | None
    """Longest sequence that the positions allow, in tokens; None where nothing bounds it."""
    vocab_size: int | None
    hidden_size: int | None
    has_sequence: bool
    """Whether `--seq-len` has a meaning for this model."""
    adapted: tuple[str, ...] = ()
    """Target modules of its adapters, as peft names them; empty without adapters. With them `parameters` are those of
    the wrapped model (4-bit weights packed, uint8), and the counts are of elements as they would be unpacked.
    """
    can_checkpoint: bool = True
    """Whether the class supports activation checkpointing."""
    notes: tuple[str, ...] = ()
    """One line each: what was ignored, chosen or replaced while building."""


_ADDED_BY_PEFT = re.compile(r"^base_model\.model\.|\.base_layer\b|\.original_module\b")


def built_parameters(spec: ModelSpec) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of the base model's parameters, under the names that they have without adapters."""
    if not spec.adapted:
        return {p.name: (p.shape, p.dtype) for p in spec.parameters}
    return {_ADDED_BY_PEFT.sub("", p.name): (p.shape, p.dtype) for p in spec.parameters if not p.trainable}


def spec_from(values: dict[str, Any]) -> ModelSpec:
    """The spec that `dataclasses.asdict` made `values` of, after JSON or before. ValueError, TypeError or KeyError for
    anything else.
    """
    parameters = tuple(
        ParameterSpec(**{**parameter, "shape": tuple(parameter["shape"])}) for parameter in values["parameters"]
    )
    texts = {name: tuple(values[name]) for name in ("adapted", "notes")}
    return ModelSpec(**{**values, "parameters": parameters, **texts})
