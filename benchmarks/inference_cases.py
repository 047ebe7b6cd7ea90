"""Published inference rows as cases that can be estimated, or the reason why a row cannot.

What the software of a row did otherwise than the installed transformers is declared here, from that version's source;
nothing is fitted.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import nn

Row = dict[str, Any]

_ASIDE = {
    "accelerate-bmi": "says neither which statistic it reports nor the lengths",
    "autoawq": "AutoAWQ's own fused modules, attention and cache",
    "chatglm2": "code of the model's own repository; does not say which statistic it reports",
    "exllama": "exllama's own model, kernels and buffers",
    "glm4": "does not say which statistic it reports, nor the output's length",
    "gptq-for-llama": "memory between tokens, not a peak; GPTQ-for-LLaMa's own kernels",
    "ik_llama.cpp": "llama.cpp's own buffers",
    "llama.cpp": "llama.cpp's own buffers",
    "llm-d-planner": "vLLM's own profile",
    "litgpt-inference": "litgpt's own models; prompts not stated",
    "qwen-readme-inf": "code of the model's own repository; does not say which statistic it reports",
    "torchtitan-inf": "two ranks, types not stated",
    "vllm": "vLLM's own profile",
}
_CATALOG = {
    "Qwen/Qwen2-0.5B-Instruct": ("Qwen/Qwen2-0.5B", {"max_position_embeddings": 32768}),
    "Qwen/Qwen2-1.5B-Instruct": ("Qwen/Qwen2-1.5B", {"max_position_embeddings": 32768}),
    "Qwen/Qwen2.5-3B-Instruct": ("Qwen/Qwen2.5-3B", {}),
    "Qwen/Qwen2.5-7B-Instruct": ("Qwen/Qwen2.5-7B", {}),
    "Qwen/Qwen2.5-14B-Instruct": ("Qwen/Qwen2.5-14B", {}),
    "Qwen/Qwen2.5-72B-Instruct": ("Qwen/Qwen2.5-72B", {}),
}
"""Instruction-tuned models to the catalog's config of the same sizes, and what their own config says otherwise."""
_QUANTISED = {None: None, "GPTQ-Int8": "gptq-8bit-128", "GPTQ-Int4": "gptq-4bit-128", "AWQ": "awq-4bit-128"}


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCase:
    """One row as it ran: one sample, greedy."""

    model: str
    """Id in the catalog."""
    changes: tuple[tuple[str, Any], ...]
    """Config values of the row's own model."""
    quantize: str | None
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
    legacy_tuples: bool
    """Whether the cache goes from step to step as a tuple of tensors, which the caller holds until the step returns.

    At its end the whole cache stands twice. The same file: Qwen2Model.forward makes a DynamicCache of the tuple and
    gives one back; generation/utils.py of 4.38 keeps the tuple in model_kwargs while the next step runs. From 4.42 on
    generate hands the cache itself on.
    """


def case_of(row: Row) -> InferenceCase | str:
    """How a row ran, or why it is set aside."""
    if row["group"] != "qwen-speed":
        return _ASIDE.get(row["group"], "of a source that no declaration knows")
    if row["model"] not in _CATALOG:
        return f"{row['model']}: the sum over several GPUs, or experts that its software ran one by one"
    if row["gpu"]["count"] > 1:
        return "the sum over several GPUs of peaks that do not coincide"
    if row["quantization"] not in _QUANTISED:
        return f"{row['quantization']} is not declared"
    old = str(row["software"]).startswith("transformers 4.38")
    model, changes = _CATALOG[row["model"]]
    return InferenceCase(
        model=model,
        changes=tuple(changes.items()),
        quantize=_QUANTISED[row["quantization"]],
        prompt=int(row["seq_len"]),
        new_tokens=2048,
        whole_logits=old,
        rotary_caches=old,
        legacy_tuples=old,
    )


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
