"""torch.distributed.fsdp for one rank of the planned job: wrappers that tell how they shard, and hold the whole."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.capture.sharding.casts import cast_around, cast_floats
from gpu_plan.planner.capture.sharding.own import sharding, wrapped
from gpu_plan.planner.capture.sharding.parameters import as_sharded
from gpu_plan.planner.errors import InputError

_WHOLE = ("FULL_SHARD", "HYBRID_SHARD")
"""FSDP1's ways of sharding that a plan has."""


class FullyShardedDataParallel(nn.Module):
    """As torch/distributed/fsdp/fully_sharded_data_parallel.py: unknown attributes are the module's.

    InputError for ways of sharding of which no plan is made.
    """

    def __init__(
        self,
        module: nn.Module,
        process_group: Any = None,
        sharding_strategy: Any = None,
        cpu_offload: Any = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: Any = None,
        mixed_precision: Any = None,
        ignored_modules: Any = None,
        param_init_fn: Any = None,
        device_id: Any = None,
        **_: Any,
    ) -> None:
        super().__init__()
        way = getattr(sharding_strategy, "name", "FULL_SHARD")
        if way not in _WHOLE:
            raise InputError(f"its own FSDP shards by {way}, of which no plan is made: FULL_SHARD has one")
        if getattr(cpu_offload, "offload_params", False):
            raise InputError("its own FSDP1 keeps parameters on the host (CPUOffload), of which no plan is made")
        reduced = getattr(mixed_precision, "reduce_dtype", None)
        if reduced not in (None, getattr(mixed_precision, "param_dtype", None)):
            raise InputError(f"its own FSDP1 reduces gradients in {reduced}, another type than it computes in: no plan")
        wrapped.append("FullyShardedDataParallel")
        sharding.note(mixed_precision)
        if device_id is not None:
            module.to(torch.device("cuda"))
        self._inputs = mixed_precision.param_dtype if _casts_root(mixed_precision) else None
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._inputs is not None:
            args, kwargs = cast_floats(self._inputs, (args, kwargs))
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        yield

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        return nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(*args: Any, **kwargs: Any) -> Iterator[None]:
        yield

    @staticmethod
    def set_state_dict_type(*args: Any, **kwargs: Any) -> None:
        return None


def _casts_root(policy: Any) -> bool:
    return getattr(policy, "param_dtype", None) is not None and getattr(policy, "cast_root_forward_inputs", True)


class _Gathered:
    """torch.distributed.fsdp.UnshardHandle of parameters that are whole already."""

    def wait(self) -> None:
        return None


class FSDPModule:
    """Stands for torch/distributed/fsdp/_fully_shard/_fully_shard.py: FSDPModule: its calls change when, not what."""

    def unshard(self, async_op: bool = False) -> _Gathered | None:
        return _Gathered() if async_op else None


def _silent(self: Any, *args: Any, **kwargs: Any) -> None:
    return None


def taken(real: type[Any]) -> type[FSDPModule]:
    """FSDPModule with every further public method of the installed one, each of which does nothing."""
    names = [name for name, _ in inspect.getmembers(real, inspect.isfunction) if not name.startswith("_")]
    for name in names:
        if not hasattr(FSDPModule, name):
            setattr(FSDPModule, name, _silent)
    return FSDPModule


_classes: dict[Any, Any] = {}


def _sharded_class(kind: Any) -> Any:
    """The class of a module once it is sharded, under its own name: what reads names reads the model's."""
    if kind not in _classes:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _classes[kind] = type(kind.__name__, (FSDPModule, kind), names)
    return _classes[kind]


def fully_shard(
    module: Any,
    *,
    mesh: Any = None,
    reshard_after_forward: bool | int | None = None,
    mp_policy: Any = None,
    offload_policy: Any = None,
    **_: Any,
) -> Any:
    """torch/distributed/fsdp/_fully_shard: in place, and the module is given back."""
    wrapped.append("fully_shard")
    sharding.note(mp_policy)
    sharding.kept |= reshard_after_forward is False
    sharding.offloaded |= type(offload_policy).__name__ == "CPUOffloadPolicy"
    if getattr(mesh, "ndim", 1) == 2:
        sharding.replicas = int(mesh.size(0))
    for one in module if isinstance(module, (list, tuple)) else [module]:
        if not isinstance(one, FSDPModule):
            one.__class__ = _sharded_class(type(one))
        one.to(torch.device("cuda"))
        cast_around(one, mp_policy)
        as_sharded(one, mesh)
    return module
