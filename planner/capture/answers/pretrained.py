"""`from_pretrained` without weights: the class that the config means, on meta, in the type that would be loaded.

Mirrors transformers modeling_utils.py: PreTrainedModel.from_pretrained as far as structure goes (dtype, attention
implementation, the fp32 exceptions), not the loading. Configs come from the folder, the local cache, or what the
planning process sent along; nothing of a model's repository is executed.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from gpu_plan.planner.capture.answers.quantised import four_bit, quantise_loaded
from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.source.folder_headers import read_folder

_OF_HUB = frozenset({
    "cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "trust_remote_code", "subfolder",
    "_from_pipeline", "_from_auto",
})  # fmt: skip
"""What transformers configuration_utils.py: _get_config_dict takes out of the arguments; callers hand it on apart."""


class NeedsConfigError(InputError):
    """A hub id whose config is not at hand behind the closed network."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the config of {name} is not at hand")
        self.name = name


@contextlib.contextmanager
def weightless_models(configs: Mapping[str, str]) -> Iterator[None]:
    """Within, transformers builds models from their configs alone. Patches transformers only where it is installed."""
    try:
        from transformers import PreTrainedConfig, PreTrainedModel
    except ImportError:
        yield
        return
    read = PreTrainedConfig.get_config_dict.__func__

    def get_config_dict(cls: Any, /, name: Any, **kwargs: Any) -> Any:
        try:
            return read(cls, name, **kwargs)
        except OSError:
            if Path(str(name)).exists():
                raise
            if not configs.get(str(name)):
                raise NeedsConfigError(str(name)) from None
            return json.loads(configs[str(name)]), {key: value for key, value in kwargs.items() if key not in _OF_HUB}

    with (
        mock.patch.object(PreTrainedConfig, "get_config_dict", classmethod(get_config_dict)),
        mock.patch.object(PreTrainedModel, "from_pretrained", classmethod(_from_pretrained)),
    ):
        yield


def _from_pretrained(cls: Any, /, name: Any, *args: Any, config: Any = None, **kwargs: Any) -> Any:
    if not hasattr(config, "to_dict"):
        inside = {"subfolder": kwargs["subfolder"]} if kwargs.get("subfolder") else {}
        config = cls.config_class.from_pretrained(config or name, **inside)
    if kwargs.get("trust_remote_code") and getattr(config, "auto_map", None):
        raise InputError(f"{name} asks for code of its repository: capture runs your own code only")
    config._name_or_path = str(name)  # as the loader leaves it: trainers look for the tokenizer under this name
    quantised = four_bit(name, kwargs.get("quantization_config") or getattr(config, "quantization_config", None))
    dtype = kwargs.get("dtype", kwargs.get("torch_dtype")) or "auto"
    options = {key: kwargs[key] for key in ("attn_implementation",) if kwargs.get(key) is not None}
    for key in list(kwargs):
        if hasattr(config, key) and key not in ("dtype", "torch_dtype"):
            setattr(config, key, kwargs[key])
    wanted = _dtype(dtype, config, name)
    model = cls._from_config(config, dtype=wanted, **options)
    model.name_or_path = str(name)
    model.eval()  # as from_pretrained leaves it
    if wanted in (torch.float16, torch.bfloat16):
        _keep_in_fp32(model)
    if quantised is not None:
        quantise_loaded(model, quantised)
    return model


def _dtype(dtype: Any, config: Any, name: Any) -> torch.dtype:
    """transformers modeling_utils.py: _get_dtype: what is asked for, else the config's, else that of the weights."""
    if isinstance(dtype, str) and dtype != "auto":
        dtype = getattr(torch, dtype.removeprefix("torch."))
    if isinstance(dtype, torch.dtype):
        return dtype
    stored = getattr(config, "dtype", None)
    if isinstance(stored, str):
        stored = getattr(torch, stored.removeprefix("torch."))
    return stored if isinstance(stored, torch.dtype) else _in_headers(Path(str(name)))


def _in_headers(folder: Path) -> torch.dtype:
    """The floating-point type of most elements in a folder's safetensors headers; float32 where there are none."""
    if not folder.is_dir():
        return torch.float32
    weights, _ = read_folder(folder)
    names = [] if weights is None else [name for name in weights.by_dtype if is_floating(name)]
    made: torch.dtype = getattr(torch, names[0]) if names else torch.float32
    return made


def _keep_in_fp32(model: Any) -> None:
    """transformers modeling_utils.py: `_keep_in_fp32_modules_strict` always, `_keep_in_fp32_modules` under fp16."""
    words = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if model.dtype is torch.float16:
        words |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, parameter in model.named_parameters():
        if any(part in words for part in name.split(".")):
            parameter.data = parameter.data.float()
