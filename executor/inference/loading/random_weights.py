"""Random weights for a model of which there is only a config, to try prompts, memory and speed on it (I/O).

They stand in the cache as safetensors, the same for the same config and libraries, and are loaded as any others.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from gpu_plan.executor.inference.loading.checkpoint import named_folder
from gpu_plan.planner.cache_dir import cache_dir, versions
from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.model.config_reader import MAX_BYTES, canonical_bytes, parse_config
from gpu_plan.planner.model.source.headers import SINGLE_NAME
from gpu_plan.planner.units import format_bytes

MOST_BYTES = 2 * 2**30
"""Of what is made: real weights of larger models are worth their download."""
_SEED = 0
_BESIDE = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json", "merges.txt",
    "spiece.model", "tekken.json", "chat_template.jinja", "generation_config.json",
)  # fmt: skip
"""What of the folder goes along."""


def config_folder(model: str) -> Path:
    """The folder of a model's config.json. UsageError for a model that is none on this machine."""
    folder = named_folder(model)
    if folder is None or not (folder / "config.json").is_file():
        raise UsageError(f"--random-weights makes weights for a config.json: {model} is not a folder that has one")
    return folder.absolute()


def made_folder(model: str) -> Path:
    """Where the weights of this config stand, whether they are made already or not."""
    folder = config_folder(model)
    digest = hashlib.sha256(canonical_bytes(_config(folder)))
    digest.update(repr([versions().get("torch"), versions().get("transformers"), _SEED, str(folder)]).encode())
    return cache_dir() / "random-weights" / digest.hexdigest()[:24]


def random_weights(model: str) -> Path:
    """The folder with the weights, made unless it is there.

    InputError for a config that makes no model, or one of more than `MOST_BYTES`; UnreachableError where the cache
    cannot be written.
    """
    target = made_folder(model)
    if (target / SINGLE_NAME).is_file():
        return target
    source = config_folder(model)
    made = _model(_config(source), source)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as name:
            whole = Path(name) / "whole"
            made.save_pretrained(whole, max_shard_size="4GB")  # one file
            for file in (source / name for name in _BESIDE if (source / name).is_file()):
                shutil.copyfile(file, whole / file.name)
            shutil.copyfile(source / "config.json", whole / "config.json")
            shutil.rmtree(target, ignore_errors=True)
            whole.replace(target)
    except OSError as error:
        raise UnreachableError(f"random weights cannot be written to {target}: {error.strerror or error}") from None
    return target


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        return parse_config(read_bytes(path, MAX_BYTES + 1), str(path))
    except OSError as error:
        raise UnreachableError(f"{path} cannot be read: {error.strerror or error}") from None


def _model(values: dict[str, Any], folder: Path) -> Any:
    import torch
    from accelerate import init_empty_weights

    from gpu_plan.planner.model.build.classes import config_class_of, model_class_of

    config_class = config_class_of(values)
    config = config_class.from_dict(dict(values))
    model_class, _ = model_class_of(values, config_class)
    named = str(values.get("dtype") or values.get("torch_dtype") or "float32").removeprefix("torch.")
    dtype = getattr(torch, named, None) if named in ("float32", "float16", "bfloat16") else torch.float32
    try:
        with init_empty_weights():
            empty = model_class._from_config(config, dtype=dtype)
        size = sum(tensor.numel() * tensor.element_size() for tensor in empty.parameters())
        if size > MOST_BYTES:
            raise InputError(
                f"--random-weights: {folder} would take {format_bytes(size)}, at most {format_bytes(MOST_BYTES)} are"
                " made: fetch the real weights"
            )
        torch.manual_seed(_SEED)
        return model_class._from_config(config, dtype=dtype)
    except (ValueError, TypeError, AttributeError, KeyError, ImportError) as error:
        raise InputError(f"no {model_class.__name__} can be made of {folder}: {error}") from None
