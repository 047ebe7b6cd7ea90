"""Reads a `config.json` that may be broken or hostile: bounded size, depth and time, one-line errors."""

import json
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.as_json import RefusedNumberError, json_value
from gpu_plan.planner.foreign.limits import MAX_DEPTH, MalformedError

MAX_BYTES = 5_000_000
"""The largest published configs (21,841 ImageNet labels, written twice) are below 2 MB."""


def parse_config(text: bytes | str, where: str) -> dict[str, Any]:
    """The object in `text`, which `where` names in messages.

    A key that stands twice counts with its last value, as in transformers. Raises InputError for anything
    that is not a JSON object of bounded size and depth with `model_type` or `architectures`.
    """
    config = parse_object(text, where, max_bytes=MAX_BYTES)
    _check_identity(config, where)
    return config


def parse_object(text: bytes | str, where: str, *, max_bytes: int, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """The JSON object in `text`: UTF-8, at most `max_bytes` long and `max_depth` deep, without NaN."""
    if len(text) > max_bytes:
        raise InputError(f"{where} is {len(text):,} bytes long, a file of its kind at most {max_bytes:,}: {_AGAIN}")
    try:
        value = json_value(text, max_depth=max_depth, infinity=True)
    except RefusedNumberError as error:
        raise InputError(f"{where} {error}: write a finite number of ordinary size") from None
    except MalformedError as error:
        raise InputError(f"{where} {error}: {_AGAIN}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} holds a JSON {_kind(value)}, not an object: {_AGAIN}")
    return value


def canonical_bytes(config: dict[str, Any]) -> bytes:
    """The same bytes for the same config, whatever the order of its keys: what digests are made of."""
    return json.dumps(config, sort_keys=True, separators=(",", ":")).encode("ascii")


def shown(value: object, limit: int = 60) -> str:
    """`value` as one short piece of a message."""
    text = repr(value) if not isinstance(value, (list, dict)) else f"a {_kind(value)} of {len(value)}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


OF_DIFFUSERS = (
    "plan the script that trains it (plan SCRIPT.py --gpus SPEC), or name a factory that gives one of its models and"
    " inputs, package.module:factory"
)
"""What to do with a model that is called with images, steps and conditions."""
_AGAIN = "check the file or fetch it again"


def _kind(value: object) -> str:
    names = {list: "list", str: "string", bool: "boolean", int: "number", float: "number", dict: "object"}
    return names.get(type(value), "null")


def _check_identity(config: dict[str, Any], where: str) -> None:
    model_type, architectures = config.get("model_type"), config.get("architectures")
    if model_type is None and architectures is None:
        if isinstance(name := config.get("_class_name"), str) and "_diffusers_version" in config:
            raise InputError(f"{where} is diffusers' {shown(name)}, not a model of transformers: {OF_DIFFUSERS}")
        raise InputError(f"{where} has neither model_type nor architectures: it does not describe a transformers model")
    if model_type is not None and not (isinstance(model_type, str) and model_type):
        raise InputError(f"{where}: model_type is {shown(model_type)}: write a name such as 'llama'")
    named = isinstance(architectures, list) and all(isinstance(name, str) and name for name in architectures)
    if architectures is not None and not named:
        raise InputError(f"{where}: architectures is {shown(architectures)}: write a list of class names")


def positions_of(config: dict[str, Any] | None) -> int | None:
    """Positions that a model's configuration names, or its text model's; None where it names none."""
    text = (config or {}).get("text_config")
    for part in (config or {}, text if isinstance(text, dict) else {}):
        for key in ("max_position_embeddings", "n_positions", "max_seq_len"):
            if isinstance(part.get(key), int) and part[key] > 0:
                return int(part[key])
    return None


def vocabulary_of(config: dict[str, Any] | None) -> int | None:
    """Words of a model's configuration, or of its text model's; None where it says none."""
    text = (config or {}).get("text_config")
    for part in (config or {}, text if isinstance(text, dict) else {}):
        if isinstance(part.get("vocab_size"), int):
            return int(part["vocab_size"])
    return None
