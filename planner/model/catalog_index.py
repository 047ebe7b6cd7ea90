"""The shipped catalog: which models there are and what is known of each. One JSON file, read on first use."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.plain.values import dataclass

CATALOG = Path(__file__).parent / "catalog"
KINDS = ("dense", "moe", "encoder", "encdec", "vision", "multimodal", "ssm", "hybrid")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One model of the catalog; the config itself stands in the file at `path`."""

    id: str
    file: str
    family: str
    kind: str
    """One of KINDS."""
    source: str
    """Where the config was read: repository, path and revision, page, or transformers class."""
    source_kind: str
    """`repo-copy`, `resaved`, `hub-page`, `hub-mirror`, `hub-derivative` or `class-default`."""
    published_params: int | None
    published_params_source: str | None
    meta_params: int | None
    """Parameters of the transformers class, tied weights once; None where there is no class."""
    status: str
    """`ok`, `mismatch-explained`, `ok-sibling`, `ok-unverified` or `not-native`."""
    explanation: str | None
    explanation_exact: bool | None
    built_as: str | None
    checkpoint_quant: str | None
    notes: tuple[str, ...]
    aliases: tuple[str, ...]
    """Former hub ids of the same repository."""

    @property
    def path(self) -> Path:
        return CATALOG / self.file

    @property
    def native(self) -> bool:
        """Whether transformers (the version of the index) has a class for it."""
        return self.status != "not-native"

    @property
    def parameters(self) -> int | None:
        """Parameters of the model: counted where a class exists, else as published."""
        return self.meta_params if self.meta_params is not None else self.published_params


_WORD = re.compile(r"[\w.-]+(?=[ ,?])")
_NAMES = tuple(field.name for field in fields(CatalogEntry))


def _entry(row: dict[str, Any]) -> CatalogEntry:
    values = {name: row[name] for name in _NAMES}
    return CatalogEntry(**values | {"notes": tuple(row["notes"]), "aliases": tuple(row["aliases"])})


@cache
def load_index() -> Mapping[str, CatalogEntry]:
    """Every entry by hub id, sorted by id. Read once per process (about 3 ms)."""
    document = json.loads((CATALOG / "INDEX.json").read_text(encoding="utf-8"))
    return MappingProxyType({row["id"]: _entry(row) for row in document["models"]})


@cache
def _by_lower_name() -> dict[str, CatalogEntry]:
    index = load_index()
    names = {alias.lower(): entry for entry in index.values() for alias in entry.aliases}
    return names | {model_id.lower(): entry for model_id, entry in index.items()}


def find_entry(model_id: str) -> CatalogEntry | None:
    """The entry called `model_id`: exactly, else without regard to case or by a former id; else None."""
    return load_index().get(model_id) or _by_lower_name().get(model_id.lower())


_ASKED = re.compile(r"(?P<stem>[a-z][a-z0-9._ -]*?)??[ _-]?(?:(?P<size>\d+(?:\.\d+)?)b)?", re.IGNORECASE)
_VERSION = re.compile(r"[a-z]-?(\d+(?:[._]\d+)?)(?![\dbmx._])")
_DATE = re.compile(r"-(\d{4})(?!\d)")
_REVISION = re.compile(r"-v(\d+(?:\.\d+)?)")


def family_members(asked: str) -> list[str]:
    """Ids that a family's name, a size or both stand for (`llama3`, `7b`, `qwen2.5-7b`): the family of just that name
    before its kin, the newest first, then models of text before others, then the smallest."""
    match = _ASKED.fullmatch(asked.rpartition("/")[2])
    if match is None:
        return []
    stem, size = _plain(match["stem"] or ""), match["size"]
    found = [entry for entry in load_index().values() if not stem or _called(entry, stem)]
    if size is not None:
        said = re.compile(rf"(?<![\d.]){re.escape(size.lower())}b(?![a-z0-9])")
        found = [entry for entry in found if said.search(entry.id.lower())]
    if not stem:
        return [entry.id for entry in found if entry.kind == "dense"]
    return [entry.id for entry in sorted(found, key=lambda entry: (_plain(entry.family) != stem, *_newest(entry)))]


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _called(entry: CatalogEntry, stem: str) -> bool:
    name, family = _plain(entry.id.rpartition("/")[2]).removeprefix("meta"), _plain(entry.family)
    return family == stem or (name.startswith(stem) and (family.startswith(stem) or stem.startswith(family)))


def _newest(entry: CatalogEntry) -> tuple[object, ...]:
    name = entry.id.rpartition("/")[2].lower()
    marks = (_number(pattern, name) for pattern in (_VERSION, _DATE, _REVISION))
    text = entry.kind in ("dense", "moe", "encdec", "hybrid", "ssm")
    return (*(-mark for mark in marks), not text, entry.parameters or 0, entry.id)


def _number(pattern: re.Pattern[str], name: str) -> float:
    match = pattern.search(name)
    return float(match[1].replace("_", ".")) if match else 0.0


def nearest(model_id: str) -> str:
    """` Did you mean a or b?` with catalog ids close to `model_id` (with or without its owner), or ''."""
    index = load_index()
    if members := family_members(model_id)[:3]:
        *others, last = members
        return f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
    if "/" in model_id:
        return did_you_mean(model_id, index)
    by_name = {entry.id.rpartition("/")[2]: entry.id for entry in index.values()}
    hint = did_you_mean(model_id, by_name)
    return _WORD.sub(lambda word: by_name.get(word[0], word[0]), hint)


def search(text: str = "", kind: str | None = None) -> list[CatalogEntry]:
    """Entries whose id, alias, family or class holds every word of `text`, without regard to case; by id."""
    words = text.lower().split()
    found = []
    for entry in load_index().values():
        hay = " ".join((entry.id, *entry.aliases, entry.family, entry.kind, entry.built_as or "")).lower()
        if (kind is None or entry.kind == kind) and all(word in hay for word in words):
            found.append(entry)
    return found
