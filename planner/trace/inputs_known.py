"""Values of small tensors that are known although the step runs on meta.

Models read integers on the host: image grids, placeholder counts, position ids, sequence lengths. All of them follow
from the inputs and from tensors that the model makes itself (arange, zeros), never from weights. Such tensors are
computed twice, on meta and here on the CPU, so that a host read has its true answer instead of a guess.
"""

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_flatten, tree_map_only

MAX_ELEMENTS = 1 << 21
"""Larger tensors are not followed; no host read concerns one."""

_RANDOM = frozenset({"rand", "randn", "randint", "randperm", "bernoulli", "uniform", "normal", "multinomial"})


class KnownValues:
    """CPU twins of meta storages. Views share their base's twin, so in-place changes are seen by every view."""

    def __init__(self) -> None:
        self._twins: dict[int, tuple[StorageWeakRef, torch.UntypedStorage]] = {}

    def put(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Say that the contiguous meta `tensor` holds `value` (same shape and dtype, on the CPU)."""
        storage = tensor.untyped_storage()
        self._twins[storage._cdata] = (StorageWeakRef(storage), value.contiguous().untyped_storage())

    def get(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of `tensor` as a CPU tensor, or None when it is not known."""
        if tensor.device.type != "meta":
            return tensor
        entry = self._twins.get(tensor.untyped_storage()._cdata)
        if entry is None:
            return None
        empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return empty.set_(entry[1], tensor.storage_offset(), tensor.size(), tensor.stride())  # type: ignore[no-any-return,call-overload]

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """After `func(*args, **kwargs)` gave `out` on meta: learn its values, or forget what it overwrote."""
        written = [index for index, argument in enumerate(func._schema.arguments) if _is_written(argument)]
        if not written and not self._worth_following(out):
            return
        flat, _ = tree_flatten((args, kwargs))
        inputs = [value for value in flat if isinstance(value, torch.Tensor)]
        name = func._schema.name.split("::")[-1]
        known = not any(word in name for word in _RANDOM) and all(self.get(value) is not None for value in inputs)
        if not known or (not inputs and name.startswith(("empty", "new_empty"))):
            self._forget_written(args, kwargs, func, written)
            return
        self._compute(func, args, kwargs, out, written)

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, written: list[int]) -> None:
        try:
            on_cpu = tree_map_only(torch.Tensor, self.get, (args, _without_device(func, kwargs)))
            result = func(*on_cpu[0], **on_cpu[1])
        except Exception:  # an op without a CPU kernel leaves the value unknown, which is always safe
            self._forget_written(args, kwargs, func, written)
            return
        for meta, value in zip(tree_flatten(out)[0], tree_flatten(result)[0], strict=True):
            if isinstance(meta, torch.Tensor) and self.get(meta) is None and meta.is_contiguous():
                self.put(meta, value.reshape(meta.shape).to(meta.dtype))

    def _worth_following(self, out: Any) -> bool:
        outputs = out if isinstance(out, tuple | list) else (out,)
        return any(
            isinstance(value, torch.Tensor)
            and value.device.type == "meta"
            and value.numel() <= (MAX_ELEMENTS if not value.is_floating_point() else MAX_ELEMENTS >> 5)
            and value.untyped_storage()._cdata not in self._twins
            for value in outputs
        )

    def _forget_written(self, args: tuple[Any, ...], kwargs: dict[str, Any], func: Any, written: list[int]) -> None:
        for index in written:
            name = func._schema.arguments[index].name
            value = args[index] if index < len(args) else kwargs.get(name)
            for tensor in tree_flatten(value)[0]:
                if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                    self._twins.pop(tensor.untyped_storage()._cdata, None)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _without_device(func: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The same keywords, made on the CPU where a device is named."""
    moved = {key: value for key, value in kwargs.items() if key != "device"}
    if any(argument.name == "device" for argument in func._schema.arguments):
        moved["device"] = torch.device("cpu")
    moved.pop("pin_memory", None)
    return moved
