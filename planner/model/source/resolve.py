"""From what the user wrote as MODEL to the config it means, wherever that stands.

A hub id is looked up in the shipped catalog, then in the local Hugging Face cache, then on the hub. Only
configs and safetensors headers are ever read; no code of a model's repository is run here.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.model.catalog_index import CatalogEntry, find_entry, nearest
from gpu_plan.planner.model.config_reader import (
    MAX_BYTES,
    OF_DIFFUSERS,
    canonical_bytes,
    parse_config,
    parse_object,
    shown,
)
from gpu_plan.planner.model.config_sizes import validate_config
from gpu_plan.planner.model.source import diffused as source_diffused
from gpu_plan.planner.model.source import factory as source_factory
from gpu_plan.planner.model.source import hub as source_hub
from gpu_plan.planner.model.source.folder_headers import read_folder
from gpu_plan.planner.model.source.headers import StoredWeights
from gpu_plan.planner.model.source.native import native_model_types, not_native_message
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.plain.values import dataclass

Kind = Literal["catalog", "cache", "hub", "folder", "config", "factory", "script", "job", "diffused"]

_JOB = ".toml"
"""A document that names models and phases: planner/options/several."""
_WEIGHTS = (".gguf", ".ggml", ".bin", ".pt", ".pth", ".ckpt", ".safetensors", ".onnx", ".h5", ".msgpack")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from, and what is known before it is built."""

    kind: Kind
    id: str
    """The model's name in reports: hub id, path as given, or `package.module:factory`."""
    config: dict[str, Any] | None
    """The config as published, sizes checked; None for a factory."""
    digest: str
    """sha256 of the canonical config, for a factory of its module's files, else of the file."""
    path: Path | None = None
    """The config.json; for a factory its module's file; a script or a job document."""
    revision: str | None = None
    """Commit on the hub; None elsewhere."""
    notes: tuple[str, ...] = ()
    stored: StoredWeights | None = None


def resolve(
    model: str,
    *,
    trust_remote_code: bool = False,
    revision: str | None = None,
    read_headers: bool = True,
    diffused: bool = False,
) -> ModelSource:
    """Find what `model` means: hub id, folder, config.json or `package.module:factory`.

    `revision` is a hub branch, tag or commit (the catalog, which has none, is then passed over).
    `read_headers` reads safetensors headers that are at hand. `diffused` takes models of diffusers too, of the kind of
    that name. Raises, in one line always: UnreachableError
    for what is not there or not given, InputError for what makes no sense, UsageError for a class that only
    the model's repository has.
    """
    if not model.strip() or not model.isprintable():
        raise InputError(f"MODEL is {shown(model)}: name a hub id, folder, config.json or package.module:factory")
    path = Path(os.path.expanduser(model))
    if revision is not None and (os.path.exists(path) or model.endswith(".py") or (":" in model and "/" not in model)):
        raise UsageError(f"--revision is about a model on the hub: {model} is on this machine")
    if model.endswith((".py", _JOB)):
        return _from_own_file(path, model, "job" if model.endswith(_JOB) else "script")
    if os.path.isdir(path):
        source = _from_folder(path, model, read_headers)
    elif os.path.exists(path):
        source = _from_file(path, model)
    elif ":" in model and "/" not in model:
        return _from_factory(model)
    elif _looks_like_path(model):
        raise _nothing_there(path, model)
    else:
        source = _from_id(model, revision, trust_remote_code, read_headers)
    if source.kind == "diffused":
        if not diffused:
            raise InputError(f"{model} is a model of diffusers, not of transformers: {OF_DIFFUSERS}")
        return source
    _check_native(source, trust_remote_code)
    return source


def load_factory(source: ModelSource) -> Callable[[], Any]:
    """Import a factory's module and return the callable. InputError or UnreachableError in one line."""
    return source_factory.load(source_factory.parse_factory(source.id))


user_files_digest = source_factory.user_files_digest
files_digest = source_factory.files_digest


def config_digest(config: dict[str, Any]) -> str:
    """sha256 of a config, whatever the order of its keys."""
    return hashlib.sha256(canonical_bytes(config)).hexdigest()


def _from_own_file(path: Path, model: str, kind: Kind) -> ModelSource:
    """A training script, or a job document."""
    if not path.is_file():
        words = "job document" if kind == "job" else "training script"
        raise UnreachableError(f"{model} does not exist: name a {words} that is there")
    found = path.resolve()
    return ModelSource(kind=kind, id=model, config=None, digest=source_factory.files_digest([found]), path=found)


def _from_factory(model: str) -> ModelSource:
    files = source_factory.locate(source_factory.parse_factory(model))
    digest = source_factory.files_digest(files)
    return ModelSource(kind="factory", id=model, config=None, digest=digest, path=files[-1] if files else None)


def _from_folder(folder: Path, model: str, read_headers: bool) -> ModelSource:
    path = folder / "config.json"
    if not path.is_file() and (folder / "model_index.json").is_file():
        part = source_diffused.part_of(folder, model)
        return replace(_from_folder(part, str(part), read_headers), notes=(f"of the pipeline {part.name} is trained",))
    if not path.is_file():
        called = f"; for the hub's model write {entry.id}" if (entry := _shadowed(model)) else ""
        raise InputError(f"folder {model} has no config.json: name a folder that save_pretrained wrote{called}")
    source = _from_config(path, kind="folder", name=model.rstrip("/") or model)
    return _with_headers(source, folder) if read_headers else source


def _shadowed(model: str) -> CatalogEntry | None:
    """A catalog entry that a folder of (nearly) the same name hides."""
    entry = find_entry(model.removeprefix("./").rstrip("/"))
    return entry if entry is not None and entry.id != model else None


def _from_file(path: Path, model: str) -> ModelSource:
    if not path.is_file():
        raise InputError(f"{model} is neither a file nor a folder: name a config.json")
    if path.suffix.lower() in _WEIGHTS:
        raise InputError(f"{model} holds weights, not a config: name its folder or its config.json")
    if path.suffix.lower() != ".json":
        raise InputError(f"{model} is not a config.json: name one, its folder, a hub id or package.module:factory")
    return _from_config(path, kind="config", name=model)


def _from_config(path: Path, *, kind: Kind, name: str, where: str | None = None) -> ModelSource:
    where = where or str(path)
    content = _read(path)
    config = parse_object(content, where, max_bytes=MAX_BYTES)
    if source_diffused.is_diffused(config) and kind in ("folder", "config"):
        source_diffused.class_of(config, where)
        return ModelSource(kind="diffused", id=name, config=None, digest=config_digest(config), path=path)
    config = parse_config(content, where)
    validate_config(config, where)
    return ModelSource(kind=kind, id=name, config=config, digest=config_digest(config), path=path)


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path, MAX_BYTES + 1)
    except OSError as error:
        raise UnreachableError(f"{path} cannot be read: {error.strerror}; check its permissions") from None


def _looks_like_path(model: str) -> bool:
    ends = ("/", ".json", *_WEIGHTS)
    begins = ("/", "./", "../", "~", ".\\", "..\\")
    return model in (".", "..") or model.startswith(begins) or model.endswith(ends) or model.count("/") > 1


def _nothing_there(path: Path, model: str) -> UsageError | InputError | UnreachableError:
    if "://" in model:
        return InputError(f"{model} is an address: write the model's hub id, such as meta-llama/Llama-3.1-8B")
    if path.suffix.lower() in _WEIGHTS:
        return InputError(f"{model} names weights: name the model's folder, config.json or hub id instead")
    return UnreachableError(f"there is no file or folder {model}: check the path")


def _from_id(model: str, revision: str | None, trust_remote_code: bool, read_headers: bool) -> ModelSource:
    if not source_hub.is_repo_id(model):
        raise InputError(
            f"{shown(model)} is not a hub id, and no such file or folder exists: write owner/name, a folder,"
            f" a config.json or package.module:factory.{nearest(model)}"
        )
    entry = find_entry(model) if revision is None else None
    if entry is not None and (entry.native or not trust_remote_code):
        return _from_catalog(entry, model, read_headers)
    kind: Kind = "cache"
    found = source_hub.find_cached(model, revision)
    if found is None:
        kind, found = "hub", source_hub.fetch(model, revision)
    source = _from_config(found.path, kind=kind, name=model, where=f"config.json of {model} ({found.path})")
    source = replace(source, revision=found.commit)
    if not read_headers:
        return source
    source = _with_headers(source, found.path.parent)
    return _with_remote_headers(source) if kind == "hub" and source.stored is None else source


def _from_catalog(entry: CatalogEntry, model: str, read_headers: bool) -> ModelSource:
    source = _from_config(entry.path, kind="catalog", name=entry.id)
    notes = [f"{model} is read as {entry.id}"] if model != entry.id else []
    if entry.source_kind == "class-default":
        notes.append(f"the catalog's config of {entry.id} is its transformers class's defaults")
    source = replace(source, notes=tuple(notes))
    cached = source_hub.find_cached(entry.id, None) if read_headers else None
    return source if cached is None else _with_headers(source, cached.path.parent)


def _with_headers(source: ModelSource, folder: Path) -> ModelSource:
    stored, notes = read_folder(folder)
    return replace(source, stored=stored, notes=source.notes + notes)


def _with_remote_headers(source: ModelSource) -> ModelSource:
    from gpu_plan.planner.model.source.ranges import read_remote

    stored, notes = read_remote(source.id, source.revision)
    return replace(source, stored=stored, notes=source.notes + notes)


def _check_native(source: ModelSource, trust_remote_code: bool) -> None:
    config = source.config or {}
    model_type = config.get("model_type")
    if trust_remote_code or not isinstance(model_type, str):
        return
    known = native_model_types()
    if known and model_type not in known:
        own = source.kind in ("folder", "config") and "auto_map" not in config
        hint = did_you_mean(model_type, known).strip() if own else ""
        raise UsageError(". ".join(filter(None, (not_native_message(source.id, model_type), hint))))
