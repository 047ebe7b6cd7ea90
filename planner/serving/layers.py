"""What each layer keeps of a token, read off a model's config with its class's defaults filled in.

vLLM 0.33.0: transformers_utils/model_arch_config_convertor.py (heads, head size, is_deepseek_mla), config/model.py
(get_num_kv_heads), v1/kv_cache_interface.py (FullAttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec,
MLAAttentionSpec). Layers that keep a state are those of `states`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.serving.states import LINEAR, attention_free, keeps_known_states, layers_with_states, state_of

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
    state_blocks: int = 0
    """Blocks of it that a request takes."""
    aligned: int = 1
    """Tokens that a block's length is a multiple of, of a state."""


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
    """Of a text config; none of a model whose layers all keep states. UsageError for one without attention heads."""
    if attention_free(config):
        return Heads(query=0, key_value=0, size=0)
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


def layer_caches(
    config: Mapping[str, Any],
    ranks: int,
    element_bytes: int,
    computed_bytes: int = 2,
    capability: tuple[int, int] | None = None,
) -> tuple[LayerCache, ...]:
    """Of every layer, first to last; bytes of an element of the cache, and of one that is computed.

    `capability` of the device decides which kernel keeps a state. UsageError for a layer that keeps another.
    """
    found, latent = heads(config), latent_size(config)
    layers = _number(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers") or 0
    types = config.get("layer_types")
    kinds = [str(one) for one in types[:layers]] if isinstance(types, list) and types else _plain(config, layers)
    shared = _number(config, "num_kv_shared_layers") or 0
    kept = layers_with_states(config) or kinds[: layers - shared]
    per_token = latent if latent is not None else 2 * found.key_values_of(ranks) * found.size
    if not keeps_known_states(config):
        return tuple(_layer(config, kind, per_token, ranks, element_bytes) for kind in kept)
    known = state_of(config, ranks, computed_bytes, capability)
    state = LayerCache(
        kind="state",
        window=None,
        bytes_per_token=0,
        state_bytes=known.nbytes,
        state_blocks=known.blocks,
        aligned=known.aligned,
    )
    return tuple(state if kind == LINEAR else _layer(config, kind, per_token, ranks, element_bytes) for kind in kept)


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
