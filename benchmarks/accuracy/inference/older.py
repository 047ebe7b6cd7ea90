"""What a decode step of an older transformers ran beside the installed one's operators, from that version's source."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

REPEATED_UNTIL = (4, 48)
"""From then on every model hands its attention function keys of their own heads (huggingface/transformers 35235)."""
REPEATS = frozenset(
    {"qwen2", "qwen2_moe", "mistral", "mixtral", "phi3", "starcoder2", "jamba", "zamba"}
)  # fmt: skip
"""Models whose FlashAttention-2 class of 4.38 to 4.47 calls repeat_kv; Llama's and Gemma's do not
(models/*/modeling_*.py: *FlashAttention2.forward)."""

_PENALTY, _TOP_K, _TOP_P = 1.05, 20, 0.8
"""What generation_config.json of the Qwen2 and Qwen2.5 instruct models sets; their values cost nothing, their presence
does."""


@contextmanager
def repeated_heads() -> Iterator[None]:
    """Within, keys and values are copied once for each head of the query before the attention function gets them.

    models/qwen2/modeling_qwen2.py of 4.38 and 4.46: Qwen2FlashAttention2.forward, repeat_kv.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    known = ALL_ATTENTION_FUNCTIONS
    name = "flash_attention_2"
    attend = known[name]

    def with_all_heads(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **k: Any
    ) -> Any:
        groups = query.shape[1] // key.shape[1]
        return attend(module, query, _repeated(key, groups), _repeated(value, groups), *args, **k)

    with mock.patch.dict(known._local_mapping, {name: with_all_heads}):
        yield


def _repeated(states: torch.Tensor, groups: int) -> torch.Tensor:
    """[batch, heads of keys, length, size] -> [batch, heads of the query, length, size]."""
    if groups == 1:
        return states
    batch, heads, length, size = states.shape
    wide = states[:, :, None, :, :].expand(batch, heads, groups, length, size)
    return wide.reshape(batch, heads * groups, length, size)


@contextmanager
def sampled(model: Any) -> Iterator[None]:
    """Within, each step also does what `generate` did around it: the mask, position ids, processors, the draw.

    generation/utils.py of 4.38 and 4.46: _sample, prepare_inputs_for_generation, _update_model_kwargs_for_generation;
    generation/logits_process.py. The model's own generation config samples (repetition_penalty, top_k, top_p), and
    speed_benchmark_transformers.py sets min_length.
    """
    length = 0

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal length
        ids = kwargs.get("input_ids", args[0] if args else None)
        length = length + ids.shape[1] if ids.shape[1] == 1 else ids.shape[1]
        _prepared(ids, length)

    def after(module: nn.Module, args: Any, output: Any) -> None:
        _drawn(output.logits[:, -1, :].float(), length)

    with ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(before, with_kwargs=True).remove)
        stack.callback(model.register_forward_hook(after).remove)
        yield


def _prepared(ids: torch.Tensor, length: int) -> None:
    """The mask grows by one; position ids are its running sum; one value of it is read."""
    mask = torch.cat([ids.new_ones((1, length - 1)), ids.new_ones((1, 1))], dim=-1)
    positions = mask.long().cumsum(-1) - 1
    positions.masked_fill_(mask == 0, 1)
    positions[:, -ids.shape[1] :].clone(memory_format=torch.contiguous_format)
    ids.clone(memory_format=torch.contiguous_format)
    (mask == 0.0).any()


def _drawn(scores: torch.Tensor, length: int) -> None:
    """Logits to a token, scores in fp32 as [1, vocabulary]."""
    seen = torch.zeros((1, length), dtype=torch.int64, device=scores.device)
    score = torch.gather(scores, 1, seen)
    score = torch.where(score < 0, score * _PENALTY, score / _PENALTY)
    scores = scores.scatter(1, seen, score)
    vocabulary = torch.arange(scores.shape[-1], device=scores.device)
    scores = torch.where(torch.isin(vocabulary, vocabulary[:2]), float("-inf"), scores.clone())
    scores = scores.masked_fill(scores < torch.topk(scores, _TOP_K)[0][..., -1, None], float("-inf"))
    ordered, places = torch.sort(scores, descending=False)
    removed = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - _TOP_P
    removed[..., -1:] = 0
    scores = scores.masked_fill(removed.scatter(1, places, removed), float("-inf"))
    torch.multinomial(torch.softmax(scores, dim=-1), num_samples=1)
