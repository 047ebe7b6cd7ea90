"""Tiny versions of further families, for jobs that nobody looked at before: encoders, and decoders of other makes."""

from typing import Any

from tests.accuracy.architectures import Architecture

_NARROW: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}

UNSEEN: dict[str, Architecture] = {
    "bloom": Architecture(
        kind="tied embeddings, ALiBi",
        catalog="bigscience--bloom-560m",
        overrides={"hidden_size": 64, "n_head": 4, "n_layer": 2, "vocab_size": 512, "pad_token_id": 0},
    ),
    "falcon": Architecture(
        kind="parallel residual, one key and value, tied embeddings",
        catalog="tiiuae--falcon-7b",
        overrides={
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_kv_heads": 4,
            "ffn_hidden_size": 256,
            "vocab_size": 512,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
    ),
    "bart": Architecture(
        kind="encoder and decoder, tied embeddings, dropout",
        catalog="facebook--bart-large",
        overrides={
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_ffn_dim": 160,
            "decoder_ffn_dim": 160,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "vocab_size": 512,
            "max_position_embeddings": 512,
        },
    ),
    "modernbert": Architecture(
        kind="encoder, alternating window",
        catalog="answerdotai--ModernBERT-base",
        overrides={
            **_NARROW,
            "cls_token_id": 0,
            "sep_token_id": 0,
            "local_attention": 32,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ),
    "opt": Architecture(
        kind="tied embeddings, learned positions, dropout",
        catalog="facebook--opt-1.3b",
        overrides={
            "hidden_size": 64,
            "word_embed_proj_dim": 64,
            "ffn_dim": 160,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "vocab_size": 512,
            "max_position_embeddings": 512,
        },
    ),
}
