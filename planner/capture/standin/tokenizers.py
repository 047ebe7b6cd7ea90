"""Tokenizers that are not at hand: one word one token, of the size of the model's vocabulary, with its special ids."""

import inspect
import os
from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.capture.standin.rows import WORDS
from gpu_plan.planner.capture.standin.told import Told

_BERTS = ("bert", "electra", "deberta", "deberta-v2", "albert")
_ENCODERS = (*_BERTS, "distilbert", "roberta", "mpnet", "modernbert", "xlm-roberta")
_PAIRED = _BERTS
"""Models whose tokenizers say which of two sentences a token is of."""
_BEGINNING = ("llama", "mistral", "mixtral", "gemma", "gemma2", "gemma3_text", "opt")
_ENDING = ("t5", "mt5", "umt5")
_POSITIONS = (*_BERTS, "distilbert", "roberta", "mpnet", "xlm-roberta", "gpt2")
"""Models whose tokenizers state the longest input."""
_UNLIMITED = int(1e30)
_FEWEST = 40
"""Tokens that a vocabulary has beyond its special ones."""
_UNTOLD = 32_000
"""Tokens of one whose repository is not here and has no model: as many as Llama's."""
_FILES = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model")
CHAT = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + ' ' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + ' <|im_end|> ' }}{% endgeneration %}{% else %}"
    "{{ message['content'] + ' <|im_end|> ' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant ' }}{% endif %}"
)
"""Roles and turns, as most templates have them."""


def stand_in_for_tokenizers(told: Told) -> None:
    """For the rest of the process: tokenizers and text processors that transformers does not find."""
    when_imported("transformers.tokenization_utils_base", lambda module: _take(module.PreTrainedTokenizerBase, told))
    when_imported("transformers.models.auto.tokenization_auto", lambda module: _take(module.AutoTokenizer, told))
    when_imported("transformers.models.auto.processing_auto", lambda module: _take(module.AutoProcessor, told))


def _take(owner: Any, told: Told) -> None:
    original = owner.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        if str(name) in told.absent:
            return _made(str(name), kwargs, told, None)
        try:
            found = original(cls, name, *args, **kwargs)
        except (OSError, ValueError, TypeError, AttributeError) as problem:
            if _is_here(name, kwargs):
                raise
            return _made(str(name), kwargs, told, problem)
        # Without any file, transformers 5 makes some classes with no vocabulary, and says nothing.
        empty = hasattr(found, "get_vocab") and len(found) < _FEWEST and not _is_here(name, kwargs)
        return _made(str(name), kwargs, told, None) if empty else found

    owner.from_pretrained = classmethod(from_pretrained)


def _is_here(name: Any, options: Mapping[str, Any]) -> bool:
    """Whether a folder, or the part of a pipeline that is asked of it, has a tokenizer of its own, which then fails."""
    folder = os.path.join(str(name), str(options.get("subfolder") or ""))
    return any(os.path.exists(os.path.join(folder, file)) for file in _FILES)


def _made(name: str, options: Mapping[str, Any], told: Told, problem: Exception | None) -> Any:
    from transformers import AutoConfig, LlamaConfig

    told.need(f"the tokenizer of {name}")
    config = LlamaConfig(vocab_size=_UNTOLD) if name in told.absent else AutoConfig.from_pretrained(name)
    if problem is not None and any(hasattr(config, part) for part in ("vision_config", "audio_config")):
        raise problem
    config = config.get_text_config()
    tokenizer = make(config, options)
    tokenizer.name_or_path = tokenizer.init_kwargs["name_or_path"] = name
    size = f"the model's {len(tokenizer):,} tokens"
    if name in told.absent:
        size = f"{len(tokenizer):,} tokens, for no config says its size: a model that is sized by it has another size"
    told.tell(f"tokenizer of {name} is a stand-in of {size}: one word is one token")
    return tokenizer


def make(config: Any, options: Mapping[str, Any]) -> Any:
    """The stand-in for a model's config; `options` are those of from_pretrained."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    kind, size = config.model_type, config.vocab_size
    special = _special(config, kind)
    vocabulary = _vocabulary(size, special, config)
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    before, after = _around(kind, special)
    if before or after:
        single = " ".join([*before, "$A", *after])
        second = " ".join(["$B:1", *(f"{token}:1" for token in after)])
        inner.post_processor = processors.TemplateProcessing(
            single=single,
            pair=f"{single} {second}",
            special_tokens=[(token, vocabulary[token]) for token in {*before, *after}],
        )
    names = ["input_ids", *(["token_type_ids"] if kind in _PAIRED else []), "attention_mask"]
    limit = getattr(config, "max_position_embeddings", None) if kind in _POSITIONS else None
    kept = {key: options[key] for key in ("model_max_length", "padding_side", "truncation_side") if options.get(key)}
    given = {key: options[key] for key in special if options.get(key)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_input_names=names,
        **{"model_max_length": limit or _UNLIMITED, **kept},
        **{**special, **given},
    )
    tokenizer.chat_template = CHAT
    return tokenizer


def _special(config: Any, kind: str) -> dict[str, str]:
    """Special tokens that such a model's tokenizer has; those that its config does not name are left out."""
    found = {"unk_token": "<unk>"}
    if kind in _ENCODERS:
        return {**found, "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    ids = {name: _first(getattr(config, name, None)) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    named: dict[int, str] = {}
    for name, number in ids.items():
        if number is not None and 0 <= number < config.vocab_size:
            token = named.setdefault(number, f"<{name[:3]}>")
            found[name.removesuffix("_id")] = token
    if "eos_token" not in found:
        found["eos_token"] = found.get("bos_token", "<eos>")
    if "pad_token" not in found and _pads(kind):
        found["pad_token"] = "<pad>"
    return found


def _pads(kind: str) -> bool:
    """Whether such a model's tokenizer has a padding token though its config names none, as Qwen's do: its class's own
    default (transformers models/qwen2/tokenization_qwen2.py). Llama's and GPT-2's have none: their scripts add one."""
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES, tokenizer_class_from_name

    name = TOKENIZER_MAPPING_NAMES.get(kind)
    known = tokenizer_class_from_name(name) if isinstance(name, str) else None
    if known is None:
        return False
    padding = inspect.signature(known.__init__).parameters.get("pad_token")
    return padding is not None and isinstance(padding.default, str)


def _first(number: Any) -> int | None:
    number = number[0] if isinstance(number, list | tuple) and number else number
    return number if isinstance(number, int) else None


def _vocabulary(size: int, special: Mapping[str, str], config: Any) -> dict[str, int]:
    """So many tokens: the special ones where the config has them, the stand-ins' words, words that nobody uses."""
    ids = {token: _first(getattr(config, f"{name}_id", None)) for name, token in special.items()}
    found = {token: number for token, number in ids.items() if number is not None and 0 <= number < size}
    taken = set(found.values())
    free = (number for number in range(size) if number not in taken)
    for token in dict.fromkeys([*special.values(), *WORDS]):
        if token not in found:
            found[token] = next(free)
    found.update({f"w{number}": number for number in free})
    return found


def _around(kind: str, special: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Tokens that stand before and behind every text."""
    if kind in _ENCODERS:
        return [special["cls_token"]], [special["sep_token"]]
    if kind in _ENDING:
        return [], [special["eos_token"]]
    return ([special["bos_token"]] if kind in _BEGINNING and "bos_token" in special else []), []
