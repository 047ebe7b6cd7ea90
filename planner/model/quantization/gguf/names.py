"""Which parameter of a transformers model a tensor of a GGUF file is.

ggml-org/llama.cpp gguf-py/gguf/tensor_mapping.py: TensorNameMap, for the families whose decoder blocks are named as
Llama's, as far as they hold weights of linear layers, experts and embeddings.
"""

import re

_OUTER = {
    "token_embd": ("model.embed_tokens", "embed_tokens", "transformer.wte"),
    "output": ("lm_head",),
    "output_norm": ("model.norm", "norm", "transformer.ln_f"),
}
_INNER = {
    "attn_q": ("self_attn.q_proj",),
    "attn_k": ("self_attn.k_proj",),
    "attn_v": ("self_attn.v_proj",),
    "attn_qkv": ("self_attn.qkv_proj", "attn.c_attn"),
    "attn_output": ("self_attn.o_proj", "self_attn.out_proj", "attn.c_proj"),
    "attn_q_a": ("self_attn.q_a_proj",),
    "attn_q_b": ("self_attn.q_b_proj",),
    "attn_kv_a_mqa": ("self_attn.kv_a_proj_with_mqa",),
    "attn_kv_b": ("self_attn.kv_b_proj",),
    "attn_q_norm": ("self_attn.q_norm",),
    "attn_k_norm": ("self_attn.k_norm",),
    "attn_norm": ("input_layernorm",),
    "post_attention_norm": ("post_attention_layernorm",),
    "ffn_norm": ("post_attention_layernorm", "pre_feedforward_layernorm"),
    "post_ffw_norm": ("post_feedforward_layernorm",),
    "ffn_gate": ("mlp.gate_proj",),
    "ffn_up": ("mlp.up_proj", "mlp.gate_up_proj", "mlp.c_fc"),
    "ffn_down": ("mlp.down_proj", "mlp.c_proj"),
    "ffn_gate_inp": ("mlp.gate", "block_sparse_moe.gate", "mlp.router"),
    "ffn_gate_shexp": ("mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"),
    "ffn_up_shexp": ("mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"),
    "ffn_down_shexp": ("mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"),
    "ffn_gate_inp_shexp": ("mlp.shared_expert_gate",),
}
_EXPERTS = {"ffn_gate_exps": "gate_up_proj", "ffn_up_exps": "gate_up_proj", "ffn_down_exps": "down_proj"}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_PREFIXES = ("model.layers", "layers", "model.language_model.layers", "transformer.h", "model.decoder.layers")


def candidates(name: str) -> tuple[str, ...]:
    """Names of parameters that a tensor may be, the likeliest first; empty for one that is not known."""
    if found := _BLOCK.fullmatch(name):
        number, part, kind = found.groups()
        if part in _EXPERTS:
            own = _EXPERTS[part]
            return tuple(f"{prefix}.{number}.mlp.experts.{own}" for prefix in _PREFIXES)
        return tuple(f"{prefix}.{number}.{inner}.{kind}" for inner in _INNER.get(part, ()) for prefix in _PREFIXES)
    outer, _, kind = name.rpartition(".")
    return tuple(f"{module}.{kind}" for module in _OUTER.get(outer, ()))
