"""`from_pretrained` of diffusers' models without weights: the class that the config means, in the type it would have.

diffusers models/modeling_utils.py: ModelMixin.from_pretrained as far as structure goes. Of a folder, or what of a hub
id is in the local cache.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from gpu_plan.planner.errors import InputError

_OF_HUB = ("cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "subfolder")


@contextlib.contextmanager
def weightless_diffusers(module: Any) -> Iterator[None]:
    """Within, diffusers builds models from their configs alone; `module`: diffusers.models.modeling_utils."""

    def from_pretrained(cls: Any, /, name: Any, **kwargs: Any) -> Any:
        own = {key: kwargs[key] for key in _OF_HUB if key in kwargs}
        try:
            config, *_ = cls.load_config(name, return_unused_kwargs=True, return_commit_hash=True, **own)
        except OSError:
            folder = own.get("subfolder")
            place = f"{name}/{folder}" if folder else name
            raise InputError(f"the config of {place} is not at hand: name a folder that has it") from None
        model = cls.from_config(config)
        dtype = kwargs.get("torch_dtype", kwargs.get("dtype"))
        if isinstance(dtype, torch.dtype):
            model = model.to(dtype)
        model.register_to_config(_name_or_path=name)
        return model.eval()  # as from_pretrained leaves it

    with mock.patch.object(module.ModelMixin, "from_pretrained", classmethod(from_pretrained)):
        yield
