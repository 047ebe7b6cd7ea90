"""What each layer keeps of a token, read off a model's config with its class's defaults filled in.

vLLM 0.33.0: transformers_utils/model_arch_config_convertor.py (heads, head size, is_deepseek_mla), config/model.py
(get_num_kv_heads), v1/kv_cache_interface.py (FullAttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec,
MLAAttentionSpec, MambaSpec), model_executor/layers/mamba/mamba_utils.py (MambaStateShapeCalculator,
gated_delta_net_state_shape; MambaStateDtypeCalculator), model_executor/models/config.py
(Qwen3_5ForConditionalGenerationConfig: mamba_ssm_dtype).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpu_plan.planner.errors import UsageError

LayerKind = Literal["full", "sliding", "chunked", "state"]
_KINDS: Mapping[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
}
"""transformers' names of layer types, of those whose cache is computed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """One layer's cache on one rank."""

    kind: LayerKind
    window: int | None
    """Tokens that a sliding or chunked layer looks back on."""
    bytes_per_token: int
    """0 of a state."""
    state_bytes: int = 0
    """Of a layer that keeps one state of a request, however long it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Attention heads of one layer on all ranks together."""

    query: int
    key_value: int
    size: int

    def key_values_of(self, ranks: int) -> int:
        """Key and value heads of one rank: replicated where there are fewer than ranks."""
        return max(1, self.key_value // ranks)


def heads(config: Mapping[str, Any]) -> Heads:
    """Of a text config. UsageError for one without attention heads."""
    query = _number(config, "num_attention_heads", "n_head", "n_heads", "num_heads")
    if not query:
        raise UsageError("--server: the model has no attention heads whose cache could be computed")
    size = _number(config, "head_dim") or (_number(config, "hidden_size", "n_embd", "d_model") or 0) // query
    named = _number(config, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    if named is None and config.get("multi_query") is True:
        named = 1
    return Heads(query=query, key_value=named or query, size=size)


def latent_size(config: Mapping[str, Any]) -> int | None:
    """Elements that multi-head latent attention keeps of a token, on every rank; None for other attention."""
    rank = _number(config, "kv_lora_rank")
    return None if rank is None else rank + (_number(config, "qk_rope_head_dim") or 0)


def keeps_known_states(config: Mapping[str, Any]) -> bool:
    """Whether the layers without attention are gated delta nets, whose state is known."""
    return bool(_number(config, "linear_num_value_heads")) and isinstance(config.get("layer_types"), list)


def layer_caches(
    config: Mapping[str, Any], ranks: int, element_bytes: int, computed_bytes: int = 2
) -> tuple[LayerCache, ...]:
    """Of every layer, first to last; bytes of an element of the cache, and of one that is computed.

    UsageError for a layer that keeps a state of another kind.
    """
    found, latent = heads(config), latent_size(config)
    layers = _number(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers") or 0
    types = config.get("layer_types")
    kinds = [str(one) for one in types[:layers]] if isinstance(types, list) and types else _plain(config, layers)
    shared = _number(config, "num_kv_shared_layers") or 0
    kept = kinds[: layers - shared]
    per_token = latent if latent is not None else 2 * found.key_values_of(ranks) * found.size
    state = LayerCache(
        kind="state", window=None, bytes_per_token=0, state_bytes=_delta_net(config, ranks, computed_bytes)
    )
    return tuple(
        state
        if kind == _LINEAR and keeps_known_states(config)
        else _layer(config, kind, per_token, ranks, element_bytes)
        for kind in kept
    )


_LINEAR = "linear_attention"


def _delta_net(config: Mapping[str, Any], ranks: int, computed_bytes: int) -> int:
    """Bytes of a gated delta net's convolution and of its matrix for each head, on one rank."""
    keys, values = _number(config, "linear_num_key_heads") or 0, _number(config, "linear_num_value_heads") or 0
    key, value = _number(config, "linear_key_head_dim") or 0, _number(config, "linear_value_head_dim") or 0
    behind = (_number(config, "linear_conv_kernel_dim") or 1) - 1
    wide = 4 if config.get("mamba_ssm_dtype") == "float32" else computed_bytes
    convolved = behind * (2 * key * keys + value * values) // ranks
    return convolved * computed_bytes + values // ranks * value * key * wide


def _layer(config: Mapping[str, Any], kind: str, per_token: int, ranks: int, element_bytes: int) -> LayerCache:
    known = _KINDS.get(kind)
    if known is None:
        raise UsageError(
            f"--server: layers of type {kind} keep a state of their own, whose pages are not computed in this"
            " version; models with full, sliding or chunked attention are"
        )
    window = _number(config, "sliding_window") if known == "sliding" else None
    if known == "chunked":
        window = _number(config, "attention_chunk_size")
    whole = per_token
    size, heads_of = _number(config, "global_head_dim"), _number(config, "num_global_key_value_heads")
    if known == "full" and size:
        full = Heads(query=1, key_value=heads_of or heads(config).key_value, size=size)
        whole = 2 * full.key_values_of(ranks) * size
    return LayerCache(
        kind=known if window or known == "full" else "full", window=window, bytes_per_token=whole * element_bytes
    )


def _plain(config: Mapping[str, Any], layers: int) -> list[str]:
    """Of a config that does not list its layers: all alike."""
    slides = config.get("sliding_window") and config.get("use_sliding_window", True)
    return ["sliding_attention" if slides else "full_attention"] * layers


def _number(config: Mapping[str, Any], *names: str) -> int | None:
    """The first of the names that the config gives a whole number for."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
