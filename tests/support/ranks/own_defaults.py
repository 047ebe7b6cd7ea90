"""Classes with a plan of their own to be spread over ranks, from their configuration's own defaults, narrow."""

from dataclasses import dataclass, field
from typing import Any

_NARROW = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDefaults:
    """One model class at a size that runs in milliseconds; what stands beside `tests.accuracy.architectures`."""

    model_type: str
    name: str
    """Of its class."""
    overrides: dict[str, Any] = field(default_factory=dict)

    def config(self, **changes: Any) -> dict[str, Any]:
        """Its few values, with `changes`."""
        own = {"model_type": self.model_type, "architectures": [self.name]}
        return {**own, **_NARROW, **self.overrides, **changes}


def _of(model_type: str, name: str, **overrides: Any) -> OwnDefaults:
    return OwnDefaults(model_type=model_type, name=f"{name}ForCausalLM", overrides=overrides)


_EIGHT = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_LOCAL = {"num_local_experts": 8, "num_experts_per_tok": 2}
_WINDOW = {"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"]}
_LATENT = {
    "num_key_value_heads": 4, "head_dim": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "kv_lora_rank": 16, "q_lora_rank": 24,
}  # fmt: skip
_ROUTED = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "n_shared_experts": 1,
}  # fmt: skip

OWN: dict[str, OwnDefaults] = {
    "apertus": _of("apertus", "Apertus"),
    "arcee": _of("arcee", "Arcee"),
    "cohere-2": _of("cohere2", "Cohere2", **_WINDOW),
    "cwm": _of("cwm", "Cwm", **_WINDOW),
    "ernie-4.5": _of("ernie4_5", "Ernie4_5"),
    "exaone-4": _of("exaone4", "Exaone4", **_WINDOW),
    "gemma": _of("gemma", "Gemma"),
    "helium": _of("helium", "Helium"),
    "jais-2": _of("jais2", "Jais2"),
    "nanochat": _of("nanochat", "NanoChat"),
    "olmo": _of("olmo", "Olmo"),
    "olmo-3": _of("olmo3", "Olmo3", **_WINDOW),
    "seed-oss": _of("seed_oss", "SeedOss"),
    "vaultgemma": _of("vaultgemma", "VaultGemma", **_WINDOW),
    "ernie-4.5-moe": _of(
        "ernie4_5_moe",
        "Ernie4_5_Moe",
        moe_num_experts=8,
        moe_k=2,
        moe_intermediate_size=48,
        moe_num_shared_experts=1,
        moe_layer_start_index=1,
    ),
    "hy-v3": _of("hy_v3", "HYV3", **_EIGHT),
    "granite-moe": _of("granitemoe", "GraniteMoe", **_LOCAL),
    "mellum": _of("mellum", "Mellum", **_EIGHT),
    "minimax": _of("minimax", "MiniMax", layer_types=["linear_attention", "full_attention"], block_size=8, **_LOCAL),
    "afmoe": _of("afmoe", "Afmoe", num_dense_layers=1, layer_types=_WINDOW["layer_types"], sliding_window=32, **_EIGHT),
    "flex-olmo": _of("flex_olmo", "FlexOlmo", num_experts=8, num_experts_per_tok=2),
    "cohere-2-moe": _of("cohere2_moe", "Cohere2Moe", **_WINDOW, **_EIGHT),
    "deepseek-v2": _of("deepseek_v2", "DeepseekV2", topk_method="greedy", **_LATENT, **_ROUTED),
    "glm-4-moe-lite": _of("glm4_moe_lite", "Glm4MoeLite", **_LATENT, **_ROUTED),
    "ax-k1": _of("axk1", "AXK1", **_LATENT, **_ROUTED),
    "youtu": _of("youtu", "Youtu", **_LATENT),
    "minicpm-3": _of("minicpm3", "MiniCPM3", **_LATENT),
    "mistral-4": _of("mistral4", "Mistral4", **_LATENT, **_ROUTED),
    "nemotron": _of("nemotron", "Nemotron"),
    "ministral": _of("ministral", "Ministral", **_WINDOW),
    "ministral-3": _of("ministral3", "Ministral3"),
    "dots-1": _of("dots1", "Dots1", **_WINDOW, **_ROUTED),
    "hunyuan-moe": _of("hunyuan_v1_moe", "HunYuanMoEV1", moe_topk=2, **_EIGHT),
    "laguna": _of("laguna", "Laguna", num_attention_heads_per_layer=[4, 4], **_WINDOW, **_EIGHT),
    "bailing": _of("bailing_hybrid", "BailingHybrid", **_LATENT, **_ROUTED),
    "kimi-linear": _of("kimi_linear", "KimiLinear", **_LATENT, **_ROUTED),
    "granite-shared": _of("granitemoeshared", "GraniteMoeShared", shared_intermediate_size=64, **_LOCAL),
    "solar-open": _of("solar_open", "SolarOpen", **{**_ROUTED, "first_k_dense_replace": 0}),
    "exaone-moe": _of("exaone_moe", "ExaoneMoe", first_k_dense_replace=1, num_shared_experts=1, **_WINDOW, **_EIGHT),
    "hyperclovax": _of("hyperclovax", "HyperCLOVAX"),
    "glm": _of("glm", "Glm"),
    "mimo-v2": _of("mimo_v2_flash", "MiMoV2Flash", **_WINDOW, **_ROUTED),
    "lfm2-moe": _of("lfm2_moe", "Lfm2Moe", layer_types=["conv", "full_attention"], num_dense_layers=1, **_EIGHT),
}
"""The first 22 as of 2026-11-24; those from DeepSeek-V2 on stood in no list before 2026-11-27."""
