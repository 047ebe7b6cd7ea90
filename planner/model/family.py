"""Facts about a built model read from its class, its config and its forward's signature; no table of model
names.
"""

import inspect
from typing import Any

from gpu_plan.planner.model.spec import ModelKind

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


def hidden_size_of(config: Any) -> int | None:
    """accelerate accelerator.py: _prepare_deepspeed reads hidden_size, or the largest of hidden_sizes."""
    text = getattr(config, "text_config", None)
    for source in (config, text):
        size = getattr(source, "hidden_size", None)
        if isinstance(size, int):
            return size
        sizes = getattr(source, "hidden_sizes", None)
        if isinstance(sizes, (list, tuple)) and sizes:
            return int(max(sizes))
    return None


def max_positions_of(config: Any) -> int | None:
    """Longest sequence that the positions allow; None where nothing bounds it (state-space, relative
    positions).
    """
    text = text_config_of(config)
    for key in _POSITION_KEYS:
        value = getattr(text, key, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def usable_positions_of(model: Any) -> int | None:
    """`max_positions_of` less the rows that RoBERTa-like embeddings skip: they count from the padding token's id on."""
    rows = max_positions_of(getattr(model, "config", None))
    for module in model.modules():
        padding = getattr(getattr(module, "position_embeddings", None), "padding_idx", None)
        if rows is not None and isinstance(padding, int):
            return rows - padding - 1
    return rows


def forward_names(model: Any) -> frozenset[str]:
    """Names of the parameters of `model.forward`."""
    return frozenset(inspect.signature(model.forward).parameters)


def special_tokens(config: Any) -> list[int]:
    """Token ids that a config gives a meaning (padding, ends, image placeholders), of its text part too."""
    found: list[int] = []
    for part in (config, text_config_of(config)):
        for key, value in vars(part).items():
            if key.endswith(("_token_id", "_token_index")):
                values = value if isinstance(value, list | tuple) else [value]
                found += [token for token in values if isinstance(token, int)]
    return found


def has_sequence(model: Any) -> bool:
    """Whether a number of tokens (or, for waveforms, encoder frames) is the user's to choose."""
    return bool({"input_ids", "decoder_input_ids", "input_values", "input_features"} & forward_names(model))


def attends(model: Any) -> bool:
    """Whether any module computes softmax attention (state-space models and ConvNeXt do not)."""
    classes = {type(module).__name__ for module in model.modules()}
    return any("Attention" in name and "Linear" not in name for name in classes)


def kind_of(model: Any) -> ModelKind:
    """Broad family of a model."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "model_type") or not hasattr(model, "can_generate"):
        return "module"  # also one of a script's own around a model of transformers, whose config it keeps
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
    if recurrent:
        return "hybrid" if attends(model) else "state-space"
    if any("Experts" in name or "SparseMoe" in name or "MoE" in name for name in classes):
        return "moe"
    return "dense" if model.can_generate() else "encoder"
