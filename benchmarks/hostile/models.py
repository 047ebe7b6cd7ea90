"""Model configurations, safetensors headers and what else lies in a model's folder."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from benchmarks.hostile.case import CANARY, Case, Special
from benchmarks.hostile.values import as_json, broken, nested, spoil, text, value

TINY: Mapping[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "hidden_act": "silu", "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_TRAPS: Mapping[str, Any] = {
    "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    "model_type": "evil",
    "architectures": ["os.system"],
    "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 0},
    "rope_scaling": {"rope_type": "yarn", "factor": 0},
    "text_config": {"model_type": "llama"},
    "_attn_implementation": "kernels-community/x",
    "vocab_size": 100_000_000,
    "num_hidden_layers": 1_000_000,
    "num_experts": 10**6,
    "hidden_size": 2**40,
    "layer_types": ["full_attention"] * 10_000,
    "id2label": {str(n): "x" for n in range(2000)},
    "head_dim": 0,
    "num_attention_heads": 0,
    "pad_token_id": 10**12,
}
_EVIL_CODE = f"open({CANARY!r}, 'w')\nimport os\nos.system('touch {CANARY}')\n".encode()
_ODD: tuple[Special, ...] = ("fifo", "socket", "folder", "null", "zero", "environ", "loop", "gone", "unreadable")


def configuration(seed: int, rng: Random) -> Case:
    """`plan ./model` with a configuration that is spoilt, trapped or broken."""
    document = dict(TINY)
    for key in rng.sample(sorted(_TRAPS), rng.choice((0, 0, 1, 2))):
        document[key] = _TRAPS[key]
    content = as_json(spoil(rng, document, rng.choice((1, 1, 2, 4))))
    if rng.random() < 0.25:
        content = broken(rng, content)
    files: dict[str, bytes | Special] = {"model/config.json": content, "model/evil.py": _EVIL_CODE}
    if rng.random() < 0.1:
        files["model/config.json"] = rng.choice(_ODD)
    if rng.random() < 0.1:
        files["model/generation_config.json"] = as_json(value(rng))
    return Case(kind="model", seed=seed, words=(_named(rng), "--gpus", "1xT4", *_more(rng)), files=files)


def headers(seed: int, rng: Random) -> Case:
    """A sound configuration beside safetensors files that lie."""
    header = {
        "__metadata__": {"format": "pt"},
        "model.embed_tokens.weight": {"dtype": "BF16", "shape": [256, 64], "data_offsets": [0, 32768]},
        "lm_head.weight": {"dtype": "BF16", "shape": [256, 64], "data_offsets": [32768, 65536]},
    }
    raw = as_json(spoil(rng, header, rng.choice((1, 2, 3))))
    if rng.random() < 0.3:
        raw = broken(rng, raw)
    length = rng.choice((len(raw), len(raw), len(raw), 0, 2**63, 2**64 - 1, 99_999_999, len(raw) + 5))
    content = length.to_bytes(8, "little") + raw + b"\0" * rng.choice((0, 65536))
    index = {"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": text(rng)}}
    files: dict[str, bytes | Special] = {"model/config.json": json.dumps(TINY).encode()}
    draw = rng.random()
    if draw < 0.5:
        files["model/model.safetensors"] = content
    elif draw < 0.8:
        files["model/model.safetensors.index.json"] = as_json(spoil(rng, index, rng.choice((0, 1, 2))))
        files["model/model-1.safetensors"] = content
    else:
        files[rng.choice(("model/model.safetensors", "model/model.safetensors.index.json"))] = rng.choice(_ODD)
    if rng.random() < 0.1:
        files["model/model.gguf"] = broken(rng, b"GGUF\x03\0\0\0" + rng.randbytes(60))
    return Case(
        kind="weights", seed=seed, words=("./model", "--gpus", "0xT4" if draw < 0.1 else "1xT4", "--pin"), files=files
    )


def _named(rng: Random) -> str:
    return rng.choice(("./model", "model", "model/config.json", "./model/", "model/../model"))


def _more(rng: Random) -> tuple[str, ...]:
    return rng.choice(
        (
            ("--pin",),
            ("--json",),
            ("--task", "infer"),
            ("--format", "md"),
            ("--pin", "--explain"),
            ("--peft", "lora"),
            ("--micro-batch", "1000000"),
            ("--quantize", "nf4", "--task", "infer"),
        )
    )


def deep(depth: int) -> bytes:
    """A configuration with something deep in it."""
    return json.dumps({**TINY, "x": nested(depth, lists=True)}).encode()
