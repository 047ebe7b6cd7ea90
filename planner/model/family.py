"""Facts about a built model read from its class, its config and its forward's signature; no table of model names."""

import inspect
from typing import Any

from planner.model.spec import ModelKind

_POSITION_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_target_positions",
    "max_source_positions",
)
_STATE_SPACE_WORDS = ("Mamba", "Mixer2", "RecurrentBlock", "GatedDeltaNet", "Rglru", "LinearAttention")


def text_config_of(config: Any) -> Any:
    """The part of a config that describes the text decoder (itself for text-only models)."""
    for key in ("text_config", "llm_config", "language_config"):
        inner = getattr(config, key, None)
        if inner is not None and not isinstance(inner, dict):
            return inner
    return config


def vocab_size_of(config: Any) -> int | None:
    """Rows of the token embedding, or None where there are no tokens."""
    value = getattr(text_config_of(config), "vocab_size", None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def max_positions_of(config: Any) -> int | None:
    """Longest sequence that the positions allow; None where nothing bounds it (state-space, relative positions)."""
    text = text_config_of(config)
    for key in _POSITION_KEYS:
        value = getattr(text, key, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def forward_names(model: Any) -> frozenset[str]:
    """Names of the parameters of `model.forward`."""
    return frozenset(inspect.signature(model.forward).parameters)


def kind_of(model: Any) -> ModelKind:
    """Broad family of a model."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "model_type"):
        return "module"
    names = forward_names(model)
    if "pixel_values" in names:
        return "multimodal" if "input_ids" in names and "return_loss" not in names else "vision"
    if getattr(config, "is_encoder_decoder", False):
        return "encoder-decoder"
    if "input_values" in names or "input_features" in names:
        return "audio"
    return _text_kind(model)


def _text_kind(model: Any) -> ModelKind:
    classes = {type(module).__name__ for module in model.modules()}
    recurrent = any(word in name for name in classes for word in _STATE_SPACE_WORDS)
    attends = any("Attention" in name and "Linear" not in name for name in classes)
    if recurrent:
        return "hybrid" if attends else "state-space"
    if any("Experts" in name or "SparseMoe" in name or "MoE" in name for name in classes):
        return "moe"
    return "dense" if model.can_generate() else "encoder"
