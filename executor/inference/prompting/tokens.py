"""Prompts as tokens and back, checked against the model (I/O for the tokenizer's files)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_plan.executor.inference.loading.checkpoint import Checkpoint
from gpu_plan.executor.inference.prompting.decode import Ends, Item
from gpu_plan.executor.inference.prompting.prompts import Prompt, Prompts, check_tokens
from gpu_plan.planner.errors import InputError, UsageError

_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "spiece.model", "tekken.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Every prompt's tokens, and what turns new ones into text."""

    items: tuple[Item, ...]
    tokenizer: Any | None
    ends: Ends

    def text(self, tokens: Sequence[int]) -> str | None:
        """None without a tokenizer."""
        if self.tokenizer is None:
            return None
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))


def tokenise(prompts: Prompts, checkpoint: Checkpoint, *, ignore_stop: bool = False) -> Tokens:
    """Tokens of all prompts. UsageError where texts meet a folder without a tokenizer; InputError for bad tokens."""
    tokenizer = _tokenizer(checkpoint.folder)
    if tokenizer is None and prompts.need_tokenizer:
        raise UsageError(
            f"{checkpoint.folder} has no tokenizer and {prompts.path.name} has texts: give it tokens,"
            ' {"input_ids": [...]}, or save the tokenizer beside the model'
        )
    vocabulary = _integer(_inner(checkpoint.config).get("vocab_size"))
    items = []
    for prompt in prompts.items:
        tokens = _tokens(prompt, tokenizer, prompts)
        bad = next((token for token in tokens if vocabulary is not None and token >= vocabulary), None)
        if bad is not None:
            raise InputError(f"{prompts.where(prompt)}: token {bad} is beyond the vocabulary of {vocabulary:,}")
        items.append(Item(index=prompt.index, tokens=tokens))
    return Tokens(items=tuple(items), tokenizer=tokenizer, ends=_ends(checkpoint, tokenizer, ignore_stop))


def check_lengths(prompts: Prompts, tokens: Tokens, checkpoint: Checkpoint, new: int, context: int | None) -> None:
    """InputError for the first prompt that goes beyond the model's positions or the plan's context."""
    encoder = bool(checkpoint.config.get("is_encoder_decoder"))
    lengths = [len(item.tokens) for item in tokens.items]
    positions = _positions(checkpoint)
    if positions is not None:
        check_tokens(prompts, lengths, positions, 0 if encoder else new, "the model's context")
    if context is not None:
        check_tokens(prompts, lengths, context, new, "the plan's --context")


def _tokenizer(folder: Path) -> Any | None:
    if not any((folder / name).is_file() for name in _FILES):
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise InputError(f"the tokenizer in {folder} cannot be read: {' '.join(str(error).split())[:200]}") from None


def _tokens(prompt: Prompt, tokenizer: Any, prompts: Prompts) -> tuple[int, ...]:
    if prompt.input_ids is not None:
        return prompt.input_ids
    if prompt.messages is not None:
        if getattr(tokenizer, "chat_template", None) is None:
            raise UsageError(f"{prompts.where(prompt)} has messages, and the tokenizer no chat template: give prompt")
        text = tokenizer.apply_chat_template(list(prompt.messages), tokenize=False, add_generation_prompt=True)
        found = tokenizer(text, add_special_tokens=False)["input_ids"]
    else:
        found = tokenizer(prompt.text)["input_ids"]
    if not found:
        raise InputError(f"{prompts.where(prompt)} has no token")
    return tuple(int(token) for token in found)


def _ends(checkpoint: Checkpoint, tokenizer: Any, ignore_stop: bool) -> Ends:
    generation = _generation_config(checkpoint.folder)
    config = _inner(checkpoint.config)
    stop = _list(generation.get("eos_token_id")) or _list(config.get("eos_token_id"))
    if not stop and tokenizer is not None:
        stop = _list(tokenizer.eos_token_id)
    pad = _list(generation.get("pad_token_id")) or _list(config.get("pad_token_id"))
    if not pad and tokenizer is not None:
        pad = _list(tokenizer.pad_token_id)
    return Ends(pad=(pad or stop or (0,))[0], stop=() if ignore_stop else stop)


def _generation_config(folder: Path) -> dict[str, Any]:
    from gpu_plan.planner.foreign.files import read_bytes
    from gpu_plan.planner.model.config_reader import MAX_BYTES, parse_object

    path = folder / "generation_config.json"
    return parse_object(read_bytes(path, MAX_BYTES + 1), str(path), max_bytes=MAX_BYTES) if path.is_file() else {}


def _list(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(token for token in values if isinstance(token, int) and not isinstance(token, bool) and token >= 0)


def _inner(config: Any) -> dict[str, Any]:
    """The language model's part of a config of several."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else dict(config)


def _positions(checkpoint: Checkpoint) -> int | None:
    config = _inner(checkpoint.config)
    for key in ("max_position_embeddings", "n_positions", "max_sequence_length"):
        found = _integer(config.get(key))
        if found is not None and found > 0:
            return found
    return None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
