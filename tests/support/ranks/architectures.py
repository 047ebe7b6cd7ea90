"""Further classes with a plan of their own to be spread over ranks: narrow, two layers of each kind."""

from tests.accuracy.architectures import Architecture

_NARROW = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 512,
}
_HEADS = {**_NARROW, "head_dim": 16}
_EXPERTS = {**_HEADS, "num_experts_per_tok": 2, "moe_intermediate_size": 48}


def _of(kind: str, catalog: str, **overrides: object) -> Architecture:
    return Architecture(kind=kind, catalog=catalog, overrides={**_NARROW, **overrides})


SPREAD: dict[str, Architecture] = {
    "mistral": _of("dense, window", "mistralai--Mistral-7B-v0.1", sliding_window=32),
    "qwen3": _of("dense, norms of queries and keys", "Qwen--Qwen3-8B", head_dim=16),
    "phi-3": _of("dense, packed projections", "microsoft--Phi-3-mini-4k-instruct", pad_token_id=0),
    "phi-2": _of("dense, parallel residual, biases", "microsoft--phi-2"),
    "olmo-2": _of("dense, norms behind", "allenai--OLMo-2-1124-7B", pad_token_id=0),
    "glm-4": _of("dense, packed feed-forward", "zai-org--glm-4-9b-chat-hf", head_dim=16, pad_token_id=0),
    "granite-3": _of("dense, multipliers", "ibm-granite--granite-3.2-8b-instruct", pad_token_id=0),
    "smollm-3": _of(
        "dense, layers without positions",
        "HuggingFaceTB--SmolLM3-3B",
        pad_token_id=0,
        layer_types=None,
        no_rope_layers=None,
    ),
    "starcoder-2": _of("dense, biases", "bigcode--starcoder2-7b"),
    "command-r": _of("dense, parallel residual, one norm", "CohereLabs--c4ai-command-r-v01", pad_token_id=0),
    "gpt-neox": _of("dense, parallel residual", "EleutherAI--pythia-1b"),
    "gpt-oss": _of(
        "experts, sinks",
        "openai--gpt-oss-20b",
        pad_token_id=0,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        quantization_config=None,
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention"],
        rope_scaling=None,
        rope_parameters=None,
    ),
    "glm-4-moe": _of(
        "experts",
        "zai-org--GLM-4.7",
        head_dim=16,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=48,
        first_k_dense_replace=1,
        pad_token_id=0,
    ),
    "qwen2-moe": _of(
        "experts, a shared one",
        "Qwen--Qwen1.5-MoE-A2.7B",
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=48,
        shared_expert_intermediate_size=48,
    ),
    "phi-moe": _of(
        "experts",
        "microsoft--Phi-3.5-MoE-instruct",
        num_local_experts=4,
        num_experts_per_tok=2,
        pad_token_id=0,
        rope_scaling=None,
        rope_parameters=None,
        sliding_window=512,
    ),
    "minimax-m2": _of(
        "experts",
        "MiniMaxAI--MiniMax-M2.5",
        head_dim=16,
        num_local_experts=8,
        num_experts_per_tok=2,
        quantization_config=None,
        rotary_dim=8,
    ),
}
