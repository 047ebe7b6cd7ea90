"""A model of transformers as Megatron-core would build it, from its configuration.

The mappings are Megatron-Bridge's (megatron/bridge/models): the model's own names for TransformerConfig's. It has none
for phi3, whose layers are Llama's with packed projections, as Megatron-core packs them.
"""

from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.megatron.architecture import Architecture, Experts, LatentAttention

_GATED = frozenset(
    {
        "llama", "mistral", "qwen2", "qwen3", "phi3",
        "mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe",
    }
)  # fmt: skip
_NORMED = frozenset({"qwen3", "qwen3_moe"})
KNOWN = (*sorted(_GATED), "gpt2")
"""Model types that are built."""


def architecture_of(config: Mapping[str, Any] | None, name: str) -> Architecture:
    """UsageError, in one line, for a model that GPTModel is not or whose mapping is not in this version."""
    kind = None if config is None else config.get("model_type")
    if config is None or kind not in KNOWN:
        what = "a model without a configuration" if kind is None else f"model type {kind}"
        raise UsageError(f"{name}: {what} is not built by Megatron-core's GPTModel here; it builds {', '.join(KNOWN)}")
    if kind == "phi3" and (_rotary(config).get("rope_type") or _rotary(config).get("type")) in ("longrope", "su"):
        raise UsageError(f"{name}: its positions are stretched by longrope, which Megatron-core's GPTModel has not")
    if config.get("quantization_config"):
        config = {key: value for key, value in config.items() if key != "quantization_config"}
    return _gpt2(config) if kind == "gpt2" else _llama(config, str(kind))


def _gpt2(config: Mapping[str, Any]) -> Architecture:
    hidden, heads = int(config.get("n_embd", 768)), int(config.get("n_head", 12))
    return Architecture(
        layers=int(config.get("n_layer", 12)),
        hidden=hidden,
        intermediate=int(config.get("n_inner") or 4 * hidden),
        heads=heads,
        groups=heads,
        head_dim=hidden // heads,
        vocabulary=int(config.get("vocab_size", 50257)),
        gated=False,
        norm="layer",
        biases=True,
        tied=bool(config.get("tie_word_embeddings", True)),
        positions=int(config.get("n_positions", 1024)),
        rotary=False,
    )


def _llama(config: Mapping[str, Any], kind: str) -> Architecture:
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    return Architecture(
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        intermediate=int(config["intermediate_size"]),
        heads=heads,
        groups=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        vocabulary=int(config["vocab_size"]),
        query_biases=kind == "qwen2" or bool(config.get("attention_bias")),
        query_norm=kind in _NORMED or bool(config.get("use_qk_norm")),
        tied=bool(config.get("tie_word_embeddings", False)),
        rotary_base=_rotary(config).get("rope_theta"),
        rotary_share=float(_rotary(config).get("partial_rotary_factor", 1.0)),
        norm_epsilon=config.get("rms_norm_eps"),
        rotary_factor=_rotary(config).get("factor") if _rotary(config).get("rope_type") == "llama3" else None,
        latent=_latent(config),
        experts=_experts(config, kind),
        next_tokens=int(config.get("num_nextn_predict_layers") or 0),
    )


def _latent(config: Mapping[str, Any]) -> LatentAttention | None:
    if not config.get("kv_lora_rank"):
        return None
    rotary = _rotary(config)
    stretched = [(name, float(rotary[key])) for key, name in _STRETCHED.items() if rotary.get(key) is not None]
    return LatentAttention(
        query_rank=int(config["q_lora_rank"]) if config.get("q_lora_rank") else None,
        key_value_rank=int(config["kv_lora_rank"]),
        head_dim=int(config["qk_nope_head_dim"]),
        rotary_dim=int(config["qk_rope_head_dim"]),
        value_dim=int(config["v_head_dim"]),
        stretched=tuple(stretched),
    )


_SIGMOID = frozenset({"deepseek_v3", "glm4_moe"})
"""Whose routers score each expert by itself, with a bias that keeps them equally busy."""
_BALANCE = {"glm4_moe": 0.001}
"""glm45_bridge.py: moe_aux_loss_coeff."""

_STRETCHED = {"factor": "rotary_scaling_factor", "mscale": "mscale", "mscale_all_dim": "mscale_all_dim"}
"""Megatron-Bridge model_bridge.py: MLA_ROPE_SCALING_MAPPING, as far as Megatron-LM has arguments for them."""


def _experts(config: Mapping[str, Any], kind: str) -> Experts | None:
    count = config.get("n_routed_experts") or config.get("num_local_experts") or config.get("num_experts")
    if not count:
        return None
    width = int(config.get("moe_intermediate_size") or config["intermediate_size"])
    latent, sigmoid = kind.startswith("deepseek"), kind in _SIGMOID
    by_sample = latent or sigmoid
    weight = (
        config.get("aux_loss_alpha", _BALANCE.get(kind, 0.0001)) if by_sample else config.get("router_aux_loss_coef")
    )
    groups = int(config.get("n_group") or 0)
    return Experts(
        count=int(count),
        chosen=int(config.get("num_experts_per_tok", 2)),
        width=width,
        shared_width=width * int(config.get("n_shared_experts") or 0),
        dense_layers=int(config.get("first_k_dense_replace") or 0),
        every=int(config.get("decoder_sparse_step") or 1),
        score="sigmoid" if sigmoid else "softmax",
        first_softmax=latent or (not sigmoid and config.get("norm_topk_prob") is False),
        biased=sigmoid,
        groups=groups if groups > 1 else 0,
        chosen_groups=int(config.get("topk_group") or 0) if groups > 1 else 0,
        scale=float(config["routed_scaling_factor"]) if config.get("routed_scaling_factor") else None,
        balance=("seq_aux_loss" if by_sample else "aux_loss") if weight else "none",
        balance_weight=float(weight or 0.0),
    )


def _rotary(config: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_parameters` of transformers 5, or the keys that came before."""
    own = {key: config.get(key) for key in ("rope_theta", "partial_rotary_factor")}
    older = {**own, **(config.get("rope_scaling") or {})}
    found = {**older, **(config.get("rope_parameters") or {})}
    return {key: value for key, value in found.items() if value is not None}
