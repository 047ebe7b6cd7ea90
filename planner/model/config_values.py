"""What values of a config mean whatever the model: shares, angles' bases, types, sizes, told by how keys are named.

A model's class takes most of them as they come: a dropout of 2, a rotary base of 0, or a torch_dtype that names any
attribute of torch. How keys are named was read off every config class of transformers 5.23 and every config of the
catalog: their values pass.
"""

import re
from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.config_reader import shown

WITH_VALUE_HEAD = "WithValueHead"
"""What an architecture's name ends in where a value head stands beside its own, as TRL calls its wrapper."""
_SHARE = re.compile(r"(?:^|_)(?<!topk_)(?:dropout|pdrop|layerdrop|drop_path_rate|dropout_rate|prob)$")
_BASE = re.compile(r"(?:^|_)(?:theta|base_freq)$|^rotary_emb(?:edding)?_base$|^partial_rotary_factor$|^rotary_pct$")
_NORM_EPSILON = re.compile(r"norm_(?:eps|epsilon)$|^ln_eps$")
_EPSILON = re.compile(r"(?:^|_)(?:eps|epsilon)$")
_SIZE = re.compile(r"(?:^|_)(?:size|dim|rank|width|heads|experts|channels)$")
_MAY_BE_ZERO = frozenset(
    {
        "additional_vocab_size", "head_dim", "num_shared_experts", "n_shared_experts", "projection_dim",
        "qk_rope_head_dim", "shared_intermediate_size", "shared_expert_intermediate_size", "speaker_embedding_size",
        "type_vocab_size", "window_size", "hidden_size_per_layer_input", "gap_size", "group_size", "rotary_dim",
    }
)  # fmt: skip
"""Sizes of parts that a model may go without."""
_UNLIMITED = frozenset({"chunk_size", "window_size", "sliding_window_size", "group_size", "rotary_dim"})
"""Sizes for which -1 stands for the whole."""
_STEPS = frozenset({"decoder_sparse_step"})
"""Every how many-th layer is of a kind."""
_WINDOWS = frozenset({"sliding_window", "attention_window_size", "local_attention"})
"""Where -1, and in some configs 0, stands for no window."""
_DTYPE_KEYS = ("dtype", "torch_dtype")
DTYPES = frozenset(
    {
        "float", "float16", "float32", "float64", "half", "double", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz",
        "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "int8", "uint8", "auto",
    }
)  # fmt: skip
"""Names of torch's types that a checkpoint is in."""


def check_value(key: str, value: object, name: str, where: str) -> None:
    """InputError in one line, file, key, value and remedy named, for a value that means nothing; None passes."""
    if key in _DTYPE_KEYS and isinstance(value, str):
        if value.removeprefix("torch.") not in DTYPES:
            raise InputError(f"{where}: {name} is {shown(value)}: write a type of torch, such as 'bfloat16'")
    elif isinstance(value, list):
        for position, item in enumerate(value[:_MOST_LISTED]):
            # Of a list, one for each layer, 0 is a layer without.
            if item != 0:
                _check_number(key, item, f"{name}[{position}]", where)
    else:
        _check_number(key, value, name, where)


_MOST_LISTED = 10_000


def check_rotation(scaling: Mapping[str, Any], name: str, where: str) -> None:
    """InputError for a `factor` of a rotary embedding that stretches nothing to nothing."""
    for key, value in scaling.items():
        number = _number(value) if key == "factor" or key.endswith("_factor") else None
        if number is not None and not number > 0:
            raise InputError(f"{where}: {name}{key} is {shown(value)}: write a number above 0")


_ROUTED = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk", "top_k_experts")


def check_routing(mapping: Mapping[str, Any], prefix: str, where: str) -> None:
    """InputError where tokens go to no expert, or to more than there are; a config without experts may say anything."""
    experts = max((mapping[key] for key in _ROUTED if type(mapping.get(key)) is int), default=0)
    for key in _CHOSEN:
        chosen = mapping.get(key)
        if experts > 0 and type(chosen) is int and not 1 <= chosen <= experts:
            raise InputError(
                f"{where}: {prefix}{key} is {shown(chosen)} of {experts:,} experts: write a number from 1 to"
                f" {experts:,}"
            )


def _check_number(key: str, value: object, name: str, where: str) -> None:
    number = _number(value)
    wanted = None
    if _SHARE.search(key):
        wanted = "a share from 0 to 1" if isinstance(value, str) or not _within(number, 0, 1) else None
    elif _BASE.search(key) or _NORM_EPSILON.search(key):
        positive = number > 0 if number is not None else not isinstance(value, (str, bool))
        wanted = None if positive else "a number above 0"
    elif key in _STEPS:
        wanted = "a number of at least 1" if number is not None and number < 1 else None
    elif key in _WINDOWS:
        wanted = "a number of at least 1, or null for none" if number is not None and number < -1 else None
    elif _EPSILON.search(key):
        wanted = "a number of 0 or more" if number is not None and not number >= 0 else None
    elif _SIZE.search(key) and "ngram" not in key and isinstance(value, int) and number is not None and number < 1:
        allowed = (number == 0 and key in _MAY_BE_ZERO) or (number == -1 and key in _UNLIMITED)
        wanted = None if allowed else "a number of at least 1"
    if wanted is not None:
        raise InputError(f"{where}: {name} is {shown(value)}: write {wanted}")


def _within(number: float | None, least: float, most: float) -> bool:
    return number is None or least <= number <= most


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
