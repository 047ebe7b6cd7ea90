"""Published generations as cases that can be estimated, by rule from their rows.

What the software of a row did otherwise than the installed transformers is declared here, from that version's source;
nothing is fitted.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import nn

from benchmarks.accuracy.inference.older import REPEATED_UNTIL, REPEATS, repeated_heads, sampled
from benchmarks.accuracy.inference.told import check_told
from benchmarks.accuracy.machines import cluster_of
from benchmarks.accuracy.models import Models
from benchmarks.accuracy.row import Row, SetAside, field, needed, number, text, whole
from benchmarks.accuracy.software import transformers_of

_OWN_CODE = (
    ("autoawq", "AutoAWQ's own fused modules, attention and cache"),
    ("exllama", "exllama's own model, kernels and buffers"),
    ("gptq-for-llama", "GPTQ-for-LLaMa's own kernels"),
    ("llama.cpp", "llama.cpp's own buffers"),
    ("vllm", "vLLM's own profile"),
    ("llm-d", "vLLM's own profile"),
    ("litgpt", "litgpt's own models"),
    ("torchtitan", "torchtitan's own models"),
)
_POSITIONS = {"Qwen/Qwen2-0.5B-Instruct": 32768, "Qwen/Qwen2-1.5B-Instruct": 32768}
"""Where a further trained model's own config has other positions than the catalog's of the same sizes."""
_GENERATED = re.compile(r"generate\D{0,20}(\d{1,7})\b", re.IGNORECASE)
_MOST_TOKENS = 2**21
_LAST_ROW = (4, 45)
"""From then on generate asks the head for one row."""
_QUANTISED = {
    "": None,
    "none": None,
    "bf16": None,
    "GPTQ-Int8": "gptq-8bit-128",
    "GPTQ-Int4": "gptq-4bit-128",
    "AWQ": "awq-4bit-128",
    "FP8": "fp8",
}
"""What the rows call their weights, in `--quantize`'s words; FP8 in blocks of 128 × 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCase:
    """One row as it ran: one sample, greedy."""

    model: str
    config: str
    """The model's config as JSON."""
    changes: tuple[tuple[str, Any], ...]
    """Config values of the row's own model.

    Qwen3's FP8 files have a head of their own where the 16-bit ones share the embedding: in QwenLM's table
    (docs/source/getting_started/speed_benchmark.md@7a2f61f, transformers 4.51.3) weights, cache and one embedding more
    in 16 bits leave 33 to 54 MiB in each figure of 0.6B, 1.7B and 4B from 6,144 tokens on; of 8B, which shares nothing,
    weights and cache leave 37 or 38. The quantizer leaves the head alone (integrations/finegrained_fp8.py:
    replace_with_fp8_linear).
    """
    quantize: str | None
    gpu: str
    """As `--gpus` takes it."""
    prompt: int
    new_tokens: int
    whole_logits: bool
    """Whether prefill computes a row of logits for every token of the prompt and converts all to fp32.

    transformers 4.38 models/qwen2/modeling_qwen2.py: Qwen2ForCausalLM.forward; from 4.45 on generate asks for one row
    (num_logits_to_keep).
    """
    rotary_caches: bool
    """Whether every layer keeps cosines and sines of all positions in the weights' type.

    The same file: Qwen2RotaryEmbedding._set_cos_sin_cache; from 4.45 on they are computed when needed.
    """
    head_stored: bool
    """Whether the checkpoint holds a tied head a second time: both stand on the device until loading ties them.

    AutoAWQ until November 2024 (0.2.7) cloned what shared memory into its files (casper-hansen/AutoAWQ
    awq/models/base.py: save_quantized, before a28c747); transformers' and AutoGPTQ's own saving leaves copies out.
    """
    legacy_tuples: bool
    """Whether the cache goes from step to step as a tuple of tensors, which the caller holds until the step returns.

    At its end the whole cache stands twice. The same file: Qwen2Model.forward makes a DynamicCache of the tuple and
    gives one back; generation/utils.py of 4.38 keeps the tuple in model_kwargs while the next step runs. From 4.42 on
    generate hands the cache itself on.
    """
    repeated_heads: bool
    """Whether attention got keys and values copied once for each head of the query (`older.repeated_heads`)."""
    sampled: bool
    """Whether tokens were drawn as the model's own generation config says (`older.sampled`)."""


def case_of(row: Row, models: Models) -> InferenceCase:
    """How a row ran. SetAside with the reason why it cannot be said."""
    if text(row, "confidence") == "low":
        raise SetAside("configuration incomplete")
    if field(row, "measured.fits") is False:
        raise SetAside("a generation that died: no figure to compare")
    if number(row, "measured.peak_allocated_gib") is None or field(row, "statistic_defined") is False:
        raise SetAside("does not say which statistic it reports" if field(row, "measured") else "nothing measured")
    for word, reason in _OWN_CODE:
        if any(word in text(row, name).lower() for name in ("group", "source", "strategy")):
            raise SetAside(reason)
    version, cluster = transformers_of(row), cluster_of(row)
    if cluster.world_size > 1:
        raise SetAside("the sum over several GPUs of peaks that do not coincide")
    if (whole(row, "micro_batch_per_gpu") or 1) != 1:
        raise SetAside("several samples at once: their padding is not stated")
    check_told(row, cluster)
    quantization = text(row, "quantization")
    if quantization not in _QUANTISED:
        raise SetAside(f"{quantization} is not declared")
    source = models.of(row)
    config = source.config or {}
    if version < (5, 0) and any("expert" in name for name in config):
        raise SetAside("experts, which transformers ran one by one before 5.0")
    if version < _LAST_ROW and config.get("model_type") != "qwen2":
        raise SetAside(f"{config.get('model_type')} as transformers {version[0]}.{version[1]} had it is not mirrored")
    positions = _POSITIONS.get(text(row, "model"))
    changes = (("max_position_embeddings", positions),) if positions else ()
    if config.get("model_type") == "qwen3" and quantization == "FP8" and config.get("tie_word_embeddings"):
        changes += (("tie_word_embeddings", False),)
    return InferenceCase(
        model=source.id,
        config=json.dumps(config, sort_keys=True),
        changes=changes,
        quantize=_QUANTISED[quantization],
        gpu=cluster.spec,
        prompt=needed(row, "seq_len", "prompt", _MOST_TOKENS),
        new_tokens=_new_tokens(row),
        whole_logits=version < _LAST_ROW,
        rotary_caches=version < _LAST_ROW,
        head_stored=bool(config.get("tie_word_embeddings")) and quantization == "AWQ" and _copies_stored(row),
        legacy_tuples=version < (4, 42),
        repeated_heads=version < REPEATED_UNTIL and config.get("model_type") in REPEATS,
        sampled=text(row, "group") == "qwen-speed",
    )


def _copies_stored(row: Row) -> bool:
    """Whether the AutoAWQ of the row, hence that of its checkpoint, is one that stored copies."""
    found = re.search(r"autoawq\D{0,3}(\d+)\.(\d+)\.(\d+)", text(row, "software"), re.IGNORECASE)
    return found is not None and tuple(map(int, found.groups())) < (0, 2, 8)


def _new_tokens(row: Row) -> int:
    found = _GENERATED.search(text(row, "seq_len_kind"))
    count = int(found[1]) if found else 0
    if not 1 < count <= _MOST_TOKENS:
        raise SetAside("new tokens not stated")
    return count


@contextmanager
def as_it_was(model: Any, case: InferenceCase) -> Iterator[None]:
    """Within, `model` generates as the row's software did."""
    from transformers.cache_utils import DynamicLayer

    grown = DynamicLayer.update
    before: list[Any] = []

    def update(self: Any, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        # cache_utils.py of 4.38 and 4.46, DynamicCache.update: the first keys and values are kept, not concatenated.
        if self.is_initialized:
            if case.legacy_tuples:
                before.append((self.keys, self.values))
            return grown(self, key_states, value_states, *args, **kwargs)
        self.lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states, value_states
        return self.keys, self.values

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(DynamicLayer, "update", update))
        if case.repeated_heads:
            stack.enter_context(repeated_heads())
        if case.sampled:
            stack.enter_context(sampled(model))
        if case.legacy_tuples:
            stack.callback(model.register_forward_hook(lambda *_: before.clear()).remove)
        if case.whole_logits:
            stack.enter_context(mock.patch.object(type(model), "_supports_logits_to_keep", return_value=False))
            handle = model.get_output_embeddings().register_forward_hook(_in_fp32)
            stack.callback(handle.remove)
        yield


def _in_fp32(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output.float()


def rotary_bytes(model: Any, case: InferenceCase) -> tuple[tuple[str, int], ...]:
    """Cosines and sines that each layer kept: positions × head size in 16 bits, twice."""
    if not case.rotary_caches:
        return ()
    config = model.config
    head = config.hidden_size // config.num_attention_heads
    size = config.max_position_embeddings * head * 2
    layers = range(config.num_hidden_layers)
    return tuple((f"layers.{n}.rotary_emb.{part}", size) for n in layers for part in ("cos_cached", "sin_cached"))
