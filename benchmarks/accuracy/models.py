"""The model of a row: from the catalog, from a folder of configs, or by the sizes that the row itself gives."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.accuracy.row import Row, SetAside, text, whole
from benchmarks.accuracy.row import field as row_field
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.model.catalog_index import find_entry, load_index
from gpu_plan.planner.model.source.resolve import ModelSource, resolve

NOT_AT_HAND = "model not at hand"
_COPIES = re.compile(r"[-_](gptq|awq|bnb|nf4|fp8|int4|int8|4bit|8bit|instruct|chat|it|base)(?=$|[-_])", re.IGNORECASE)
"""What a name says of weights that have another's sizes: quantised or further trained."""
_SIZES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "intermediate": ("intermediate_size", "n_inner", "d_ff"),
    "vocab": ("vocab_size",),
}
"""A row's `arch`, which may use these names as well, and where configs have the same."""
_WHOLE = frozenset({"hidden", "layers", "heads", "intermediate", "vocab"})
"""Sizes without which `arch` tells no model."""
_MOST_SIZE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Where models are looked for, beside the catalog."""

    configs: Path | None = None
    """A folder of `owner--name.json`, `name.json`, `owner/name/config.json` or `name/config.json`."""
    _files: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.configs is not None:
            self._files.update(_named_files(self.configs))

    def of(self, row: Row) -> ModelSource:
        """The row's model, its config with it. SetAside when it is not at hand, or its sizes are not the row's."""
        name, sizes = text(row, "model"), sizes_of(row)
        source = self._named(name) or _of_sizes(sizes)
        if source is None:
            raise SetAside(NOT_AT_HAND)
        config = source.config or {}
        for key, size in sizes.items():
            known = size_in(config, key)
            if known is not None and known != size:
                raise SetAside(f"its {key} ({size}) is not that of {source.id} ({known})")
        return source

    def _named(self, name: str) -> ModelSource | None:
        path = self._files.get(name.lower()) or self._files.get(name.rpartition("/")[2].lower())
        if path is not None:
            return _read(str(path))
        entry = find_entry(name) if name else None
        known = entry.id if entry is not None else _same_sizes(name)
        return _read(known) if known else None


def _named_files(folder: Path) -> dict[str, Path]:
    """Configs of a folder by the lower-case names that rows may call them."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.json")):
        inside = path.relative_to(folder)
        name = str(inside.parent) if path.name == "config.json" else str(inside.with_suffix(""))
        found[name.replace("--", "/").lower()] = path
    return found


@functools.cache
def _read(name: str) -> ModelSource:
    try:
        source = resolve(name, read_headers=False)
    except PlanError as problem:
        raise SetAside(f"{NOT_AT_HAND}: {problem}") from None
    if source.config is None:
        raise SetAside(NOT_AT_HAND)
    return source


def _same_sizes(name: str) -> str | None:
    """The catalog's model whose copy a name says it is: under another owner, quantised, or further trained."""
    wanted = _bare(name)
    found = {entry.id for entry in load_index().values() if _bare(entry.id) == wanted} if wanted else set()
    exact = {known for known in found if known.rpartition("/")[2].lower() == name.rpartition("/")[2].lower()}
    chosen = exact or found
    return min(chosen) if len({_geometry(known) for known in chosen}) == 1 else None


def _bare(name: str) -> str:
    return _COPIES.sub("", name.rpartition("/")[2]).lower()


@functools.cache
def _geometry(known: str) -> tuple[object, ...]:
    config = _read(known).config or {}
    return (config.get("model_type"), *(size_in(config, key) for key in _SIZES))


def _of_sizes(sizes: Mapping[str, int]) -> ModelSource | None:
    """The catalog's model of exactly these sizes, where one family alone has them."""
    if not set(sizes) >= _WHOLE:
        return None
    found = [
        entry.id
        for entry in load_index().values()
        if entry.built_as and all(_geometry(entry.id)[1 + list(_SIZES).index(key)] == sizes[key] for key in sizes)
    ]
    return _read(min(found)) if len({_geometry(known)[0] for known in found}) == 1 else None


def sizes_of(row: Row) -> dict[str, int]:
    """What the row's `arch` says. SetAside when that makes no sense."""
    arch = row_field(row, "arch")
    if not isinstance(arch, Mapping):
        return {}
    found = {}
    for key in _SIZES:
        name = next((name for name in (key, *_SIZES[key]) if arch.get(name) is not None), None)
        if name is None:
            continue
        size = whole(row, f"arch.{name}")
        if size is None or size > _MOST_SIZE:
            raise SetAside(f"its {key} makes no sense")
        found[key] = size
    return found


def size_in(config: Mapping[str, Any], key: str) -> int | None:
    """One of the sizes in a config; None where it is not there under any of its names."""
    found = next((config[name] for name in _SIZES[key] if isinstance(config.get(name), int)), None)
    if found is None and key == "kv_heads":
        return size_in(config, "heads")
    return found
