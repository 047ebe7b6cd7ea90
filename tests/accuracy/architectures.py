"""Tiny versions of published architectures: the catalog's configs with narrow widths, two layers of each kind."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_plan.planner.model

_CATALOG = Path(gpu_plan.planner.model.__file__).parent / "catalog"

_LLAMA = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 512,
}
_GQA = {**_LLAMA, "num_key_value_heads": 2}
_EXPERTS = {**_GQA, "num_experts_per_tok": 2}
_BERT = {k: v for k, v in _LLAMA.items() if k != "num_key_value_heads"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One model class at a size that runs in milliseconds."""

    kind: str
    catalog: str
    """Whose published config; none: what transformers' own class says of its model type."""
    overrides: dict[str, Any] = field(default_factory=dict)
    vocab_key: str = "vocab_size"

    def config(self, **changes: Any) -> dict[str, Any]:
        """The published config with this architecture's overrides, then `changes`."""
        values: dict[str, Any] = json.loads((_CATALOG / f"{self.catalog}.json").read_text()) if self.catalog else {}
        return {**values, **self.overrides, **changes}


ARCHITECTURES: dict[str, Architecture] = {
    "llama-2": Architecture(kind="dense", catalog="meta-llama--Llama-2-7b-hf", overrides=_LLAMA),
    "llama-3": Architecture(kind="dense, GQA", catalog="meta-llama--Meta-Llama-3-8B", overrides=_GQA),
    "qwen2": Architecture(kind="tied embeddings, GQA", catalog="Qwen--Qwen2-0.5B", overrides=_GQA),
    "gpt2": Architecture(
        kind="tied embeddings, dropout",
        catalog="openai-community--gpt2",
        overrides={"n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 512, "n_positions": 512},
    ),
    "pythia": Architecture(kind="dense, parallel residual", catalog="EleutherAI--pythia-70m", overrides=_BERT),
    "gemma-2": Architecture(
        kind="dense, soft caps, alternating window",
        catalog="google--gemma-2-2b",
        overrides={**_GQA, "head_dim": 16, "sliding_window": 32},
    ),
    "gemma-3": Architecture(
        kind="dense, window",
        catalog="google--gemma-3-1b-it",
        overrides={**_GQA, "head_dim": 16, "sliding_window": 32, "sliding_window_pattern": 2},
    ),
    "mixtral": Architecture(
        kind="mixture of experts",
        catalog="mistralai--Mixtral-8x7B-v0.1",
        overrides={**_EXPERTS, "num_local_experts": 4},
    ),
    "qwen3-moe": Architecture(
        kind="mixture of experts",
        catalog="Qwen--Qwen3-30B-A3B",
        overrides={**_EXPERTS, "num_experts": 8, "moe_intermediate_size": 48, "head_dim": 16},
    ),
    "olmoe": Architecture(
        kind="mixture of experts",
        catalog="allenai--OLMoE-1B-7B-0924-SFT",
        overrides={**_EXPERTS, "num_experts": 8},
    ),
    "deepseek-v3": Architecture(
        kind="mixture of experts, latent attention",
        catalog="deepseek-ai--DeepSeek-V3",
        overrides={
            **_EXPERTS,
            "num_key_value_heads": 4,
            "num_hidden_layers": 3,
            "first_k_dense_replace": 1,
            "n_routed_experts": 8,
            "n_group": 2,
            "topk_group": 1,
            "moe_intermediate_size": 48,
            "q_lora_rank": 32,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "quantization_config": None,
            "rope_scaling": None,
        },
    ),
    "bert": Architecture(kind="encoder", catalog="google-bert--bert-base-uncased", overrides=_BERT),
    "esm-2": Architecture(
        kind="encoder",
        catalog="facebook--esm2_t6_8M_UR50D",
        overrides={**_BERT, "vocab_size": 33, "max_position_embeddings": 514},
    ),
    "t5": Architecture(
        kind="encoder-decoder",
        catalog="google-t5--t5-small",
        overrides={
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 160,
            "num_layers": 2,
            "num_decoder_layers": 2,
            "num_heads": 4,
            "vocab_size": 512,
        },
    ),
    "whisper": Architecture(
        kind="encoder-decoder, audio",
        catalog="openai--whisper-tiny",
        overrides={
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 160,
            "decoder_ffn_dim": 160,
            "max_source_positions": 64,
            "max_target_positions": 256,
            "vocab_size": 512,
            "num_mel_bins": 20,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
    "vit": Architecture(
        kind="vision",
        catalog="google--vit-base-patch16-224",
        overrides={
            "hidden_size": 64,
            "intermediate_size": 160,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 64,
            "patch_size": 8,
        },
    ),
    "mamba": Architecture(
        kind="state space",
        catalog="state-spaces--mamba-2.8b-hf",
        overrides={
            "hidden_size": 32,
            "intermediate_size": 64,
            "n_layer": 2,
            "num_hidden_layers": 2,
            "state_size": 8,
            "time_step_rank": 4,
            "vocab_size": 512,
        },
    ),
    "jamba": Architecture(
        kind="hybrid: state space, attention, experts",
        catalog="ai21labs--Jamba-v0.1",
        overrides={
            **_EXPERTS,
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 4,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
    ),
    "qwen3-next": Architecture(
        kind="hybrid: linear attention, attention, experts",
        catalog="Qwen--Qwen3-Next-80B-A3B-Instruct",
        overrides={
            **_EXPERTS,
            "num_hidden_layers": 4,
            "head_dim": 16,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "num_experts": 8,
            "moe_intermediate_size": 48,
            "shared_expert_intermediate_size": 48,
        },
    ),
}
