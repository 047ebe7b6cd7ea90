"""The same config with few layers: widths, experts and attention kinds stay."""

import copy
from typing import Any

_COUNTS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
    "depth",
    "vt_num_hidden_layers",
    "num_global_layers",
)
_PER_LAYER = (
    "layer_types",
    "layers_block_type",
    "mlp_layer_types",
    "no_rope_layers",
    "indexer_types",
    "compress_ratios",
    "attention_layers",
)


def shrink(config: dict[str, Any], layers: int = 2) -> dict[str, Any]:
    """`config` with every layer count at most `layers`, and lists per layer cut to match."""
    small = copy.deepcopy(config)
    _shrink(small, layers)
    return small


def _shrink(part: dict[str, Any], layers: int) -> None:
    layers = max(layers, _kinds(part))
    for key in ("out_features", "out_indices", "stage_names"):
        part.pop(key, None)
    if part.get("intermediate_layers_indices"):
        part["intermediate_layers_indices"] = [min(i, layers - 1) for i in part["intermediate_layers_indices"]]
    if part.get("attention_types"):
        part["attention_types"] = [[part["attention_types"][0][0], 1]]
        part["num_layers"] = layers = len(part["attention_types"][0][0])
    for key, value in list(part.items()):
        if isinstance(value, dict) and key.endswith("_config"):
            _shrink(value, layers)
        elif key in _COUNTS and isinstance(value, int):
            part[key] = min(value, layers)
        elif key in _PER_LAYER and isinstance(value, list):
            part[key] = value[:layers]
    if isinstance(part.get("hybrid_override_pattern"), str):
        part["hybrid_override_pattern"] = part["hybrid_override_pattern"][: layers + 6]
        part["num_hidden_layers"] = len(part["hybrid_override_pattern"])


def _kinds(part: dict[str, Any]) -> int:
    """Fewest layers that still hold every kind of this config's layers."""
    for key in ("layer_types", "layers_block_type"):
        names = part.get(key)
        if isinstance(names, list) and names:
            return max(names.index(name) for name in set(names)) + 1
    period = max((part.get(key) or 1 for key in ("attn_layer_period", "full_attention_interval",
                                                "sliding_window_pattern")), default=1)  # fmt: skip
    dense = part.get("first_k_dense_replace") or 0
    return max(int(period), int(dense) + 1 if dense else 1)
