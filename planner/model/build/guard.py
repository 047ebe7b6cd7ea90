"""Refusal of configs that would take unbounded time or memory to build, before and while they are built.

The meta device allocates no tensor storage, but every module is a Python object, and configs expand layer
counts into lists: a million layers is a denial of service although no byte of weights exists.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpu_plan.planner.errors import InputError

MAX_LAYERS = 2000
"""Largest accepted layer or block count; the deepest published models have a few hundred."""
MAX_SIZE = 2**40
"""Largest accepted magnitude of any whole number: beyond it, no tensor of that size fits any machine."""
MAX_PARAMETERS = 10**14
"""A hundred times the largest published model."""
MAX_MODULES = 400_000
MAX_BUILD_SECONDS = 20.0
MAX_LABELS = 1_000_000
"""transformers makes a dictionary entry per class."""
MAX_DEPTH = 16
MAX_VALUES = 200_000

_COUNT_WORDS = ("layers", "blocks", "depth", "n_layer", "num_stages", "num_mtp", "nextn")
_UNBOUNDED = frozenset({"model_max_length", "max_length", "tokenizer_max_length", "transformers_version"})
"""Keys whose huge values are habitual sentinels that no tensor is made from."""


def check_config_sizes(config: Mapping[str, Any]) -> None:
    """Raise InputError when a number or the nesting of `config` is beyond any real model."""
    for index, (path, value) in enumerate(_walk(config, "", 0)):
        if index > MAX_VALUES:
            raise InputError(f"config: more than {MAX_VALUES} values; this is not a model's config.json")
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        _check_integer(path, value)


def _check_integer(path: str, value: int) -> None:
    key = path.rsplit(".", 1)[-1].split("[", 1)[0]
    if key in _UNBOUNDED:
        return
    if any(word in key for word in _COUNT_WORDS) and not -1 <= value <= MAX_LAYERS:
        raise InputError(f"config: {path} is {value}; a layer count must lie between 0 and {MAX_LAYERS}")
    if key == "num_labels" and value > MAX_LABELS:
        raise InputError(f"config: {path} is {value}; at most {MAX_LABELS} classes are supported")
    if abs(value) > MAX_SIZE:
        shown = str(value) if abs(value) < 10**30 else f"a number of {value.bit_length()} bits"
        raise InputError(f"config: {path} is {shown}; no model has a size beyond {MAX_SIZE}")


def _walk(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    if depth > MAX_DEPTH:
        raise InputError(f"config: {path[:80]} is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _walk(child, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from _walk(child, f"{path}[{index}]", depth + 1)
    else:
        yield path, value


class _Budget(Exception):
    """Raised inside a model's constructor when it makes too many modules or takes too long."""


@contextmanager
def bounded_construction(class_name: str) -> Iterator[None]:
    """Stop a constructor that registers more than MAX_MODULES modules or runs past MAX_BUILD_SECONDS."""
    from torch.nn.modules.module import register_module_module_registration_hook

    deadline = time.monotonic() + MAX_BUILD_SECONDS
    count = 0

    def hook(module: object, name: str, child: object) -> None:
        nonlocal count
        count += 1
        if count > MAX_MODULES:
            raise _Budget(f"has more than {MAX_MODULES} modules")
        if count % 256 == 0 and time.monotonic() > deadline:
            raise _Budget(f"takes more than {MAX_BUILD_SECONDS:.0f} s to construct")

    handle = register_module_module_registration_hook(hook)
    try:
        yield
    except _Budget as problem:
        raise InputError(f"config: {class_name} {problem}; check its layer and expert counts") from None
    finally:
        handle.remove()
