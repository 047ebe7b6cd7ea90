"""What a script asks its sharded parameters for: that they are DTensors, how they lie, their local and whole values."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_MARK = "_plan_sharded"


def as_sharded(module: nn.Module, mesh: Any) -> None:
    """Says of each parameter below `module` how it lies, and over which devices (FSDP2: FSDPParam)."""
    from torch.distributed.tensor import Replicate, Shard

    placements = (Replicate(), Shard(0)) if getattr(mesh, "ndim", 1) == 2 else (Shard(0),)
    for parameter in module.parameters():
        parameter.placements, parameter.device_mesh = placements, mesh
        setattr(parameter, _MARK, True)
    for name, answer in (("full_tensor", _whole), ("to_local", _whole), ("redistribute", _whole)):
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, answer)  # gradients and norms too: they come as DTensors


def _whole(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


def answer_for(module: Any, users_own: Callable[[], bool]) -> None:
    """torch/distributed/tensor: `isinstance(parameter, DTensor)` holds where the user's own code asks."""
    real = module.DTensor

    class Kind(type(real)):  # type: ignore[misc]
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, real) or (getattr(value, _MARK, False) is True and users_own())

    names = {"__module__": real.__module__, "__qualname__": real.__qualname__, "__slots__": ()}
    module.DTensor = Kind("DTensor", (real,), names)
