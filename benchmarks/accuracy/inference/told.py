"""What a row of a generation says beyond what is made again here: set aside in words, never judged by a default."""

import re

from benchmarks.accuracy.row import Row, SetAside, field, text
from gpu_plan.planner.hardware.cluster import Cluster

_SERVERS = re.compile(
    r"\b(vllm|sglang|tgi|text-generation-inference|tensorrt(-llm)?|trt-llm|lmdeploy|mlc(-llm)?|ctranslate2|onnxruntime"
    r"|deepspeed-(inference|mii)|fastertransformer|exllama\w*|ipex|openvino|quanto|hqq|petals|airllm)\b"
)
_TASKS = ("", "inference", "generation", "generate", "text-generation", "text generation", "infer", "decode")
_FLASH = re.compile(r"^flash([-_ ]?(attention|attn))?([-_ ]?2)?$")
_TYPES = re.compile(r"\b(fp32|float32|fp8|int8|int4)\b")
_OTHERS = ("kv_cache", "kv_cache_dtype", "cache_implementation", "num_beams", "num_return_sequences", "assistant_model",
           "draft_model", "lora", "offload", "cpu_offload", "prompt_lookup", "prefill_chunk", "images")  # fmt: skip
"""Fields that change what a generation holds."""
_NOTES = (
    (r"static (kv )?cache", "a cache of fixed size"),
    (r"\bbeams?\b", "beam search"),
    (r"(kv[- ]?)?cache (is |was |kept )?(in|quanti[sz]ed to) (fp8|int8|int4|int2|[248] bits?)", "a quantised cache"),
    (r"speculative|draft model|assistant model|prompt lookup", "speculative decoding"),
    (r"\boffload", "offload"),
    (r"after (the )?load(ing)?( only)?\b", "memory after loading alone"),
)
_OLDEST_FLASH = (8, 0)
"""FlashAttention 2 refuses older GPUs (Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp: mha_fwd)."""
_PLAIN = (None, False, "", "none", "no", "dynamic", "bf16", "fp16", 0, 1)


def check_told(row: Row, cluster: Cluster) -> None:
    """SetAside where the row names a server, attention, types, cache or way to decode other than those made again."""
    found = _SERVERS.search(f"{text(row, 'software')} {text(row, 'strategy')}".lower())
    if found:
        raise SetAside(f"{found[0]}'s own buffers and kernels")
    strategy, task = text(row, "strategy").lower(), text(row, "task").lower()
    if strategy and not strategy.startswith("single"):
        raise SetAside(f"{strategy} is not mirrored")
    if task not in _TASKS:
        raise SetAside(f"task {task}: no generation of text alone")
    if field(row, "compile") not in (None, False):
        raise SetAside("compiled by a torch of its time")
    attention = text(row, "attention").lower()
    if attention and not _FLASH.match(attention):
        raise SetAside(f"attention {attention} is not mirrored")
    gpu = cluster.gpu
    if gpu.vendor not in ("nvidia", "amd"):
        raise SetAside(f"{gpu.short}: its memory is not that of torch's allocator for CUDA")
    if gpu.compute_capability is not None and gpu.compute_capability < _OLDEST_FLASH:
        raise SetAside(f"a {gpu.short} does not run FlashAttention 2, and the row names no other attention")
    _check_rest(row)


def _check_rest(row: Row) -> None:
    kind = _TYPES.search(text(row, "dtype.compute").lower())
    if kind:
        raise SetAside(f"computes in {kind[0]}")
    cached = text(row, "dtype.kv_cache").lower()
    if cached and not cached.startswith(("bf16", "bfloat16", "fp16", "float16")):
        raise SetAside(f"a cache in {cached} is not mirrored")
    for name in _OTHERS:
        if field(row, name) not in _PLAIN:
            raise SetAside(f"{name}: not mirrored")
    notes = text(row, "notes").lower()
    for pattern, words in _NOTES:
        said = re.search(pattern, notes)
        if said and not re.search(rf"\b(no|without|not|w/o)\W+(\w+\W+)?{re.escape(said[0])}", notes):
            raise SetAside(f"{words}: not mirrored")
