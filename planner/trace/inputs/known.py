"""Values of small tensors that are known although the step runs on meta.

Models read integers on the host: image grids, placeholder counts, position ids, sequence lengths. All of them
follow
from the inputs and from tensors that the model makes itself (arange, zeros), never from weights. Such tensors
are computed twice, on meta and here on the CPU, so that a host read has its true answer instead of a guess.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

MAX_ELEMENTS = 1 << 23
"""Larger tensors are not followed; no host read concerns one, but of whole numbers."""
_MOST_WHOLE = 1 << 26
"""The same of those: a loop over experts reads which tokens have chosen each."""

_SWEPT_AFTER = 1 << 27
"""Bytes of new twins after which those of dead storages go: masks of every layer would stand side by side."""

aten = torch.ops.aten

_BOOL = (torch.bool, torch.uint8)
_BOOL_INDEXED = frozenset({aten.index, aten.index_put_, aten.index_put, aten._index_put_impl_})
_DATA_DEPENDENT = frozenset(
    {
        aten.nonzero, aten.masked_select, aten.repeat_interleave, aten.unique_consecutive, aten.unique_dim,
        aten._unique2, aten._unique, aten.bincount,
    }
)  # fmt: skip
_DRAWN = frozenset({aten.randint, aten.randperm})
_RANDOM = frozenset({"rand", "randn", "randint", "randperm", "bernoulli", "uniform", "normal", "multinomial"})


def _may_be_counted(func: Any, value: torch.Tensor) -> bool:
    """Whether it is a large tensor that is followed all the same: whole numbers, or what is equal to one (torch makes
    both of choices, aten/src/ATen/native/Onehot.cpp: one_hot), no mask of attention."""
    told = value.dtype == torch.int64 or (value.dtype == torch.bool and func.overloadpacket is aten.eq)
    return told and value.numel() <= _MOST_WHOLE


class KnownValues:
    """CPU twins of meta storages; a view shares its base's twin, so every view sees a change in place."""

    def __init__(self) -> None:
        self._twins: dict[int, tuple[StorageWeakRef, torch.UntypedStorage]] = {}
        self._unswept = 0
        self.draws = False
        """Whether whole numbers that are drawn on meta are drawn here too: a script cuts its batches by them."""
        self.unknown_masks = 0
        """How often a tensor was indexed by a mask whose values nobody knows."""

    def forget(self) -> None:
        """Gives all values back; what holds this may live on until the collector comes by."""
        self._twins.clear()

    def put(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Say that the contiguous meta `tensor` holds `value` (same shape and dtype, on the CPU)."""
        storage, twin = tensor.untyped_storage(), value.contiguous().untyped_storage()
        self._twins[storage._cdata] = (StorageWeakRef(storage), twin)
        self._unswept += twin.nbytes()
        if self._unswept > _SWEPT_AFTER:
            self._twins = {key: entry for key, entry in self._twins.items() if not entry[0].expired()}
            self._unswept = 0

    def get(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of `tensor` as a CPU tensor, or None when it is not known."""
        if tensor.device.type != "meta":
            return tensor
        entry = self._twins.get(tensor.untyped_storage()._cdata)
        if entry is None:
            return None
        empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return empty.set_(entry[1], tensor.storage_offset(), tensor.size(), tensor.stride())

    def answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """(True, result) for a host read or a data-dependent shape whose inputs are known, else (False,
        None).

        Result tensors are on meta, known in turn, but for a copy to the CPU, which is the value itself.
        """
        if func is aten._local_scalar_dense.default:
            value = self.get(args[0])
            return value is not None, None if value is None else value.item()
        if func is aten._to_copy.default and args[0].device.type == "meta" and _to_cpu(kwargs):
            value = self.get(args[0])
            return value is not None, None if value is None else func(value, **kwargs)
        indexed = func.overloadpacket in _BOOL_INDEXED
        if not indexed and func.overloadpacket not in _DATA_DEPENDENT:
            return False, None
        if not any(one.is_meta for one in _tensors((args, kwargs))):
            return False, None  # the host's own values, which stay there: a collator's boundaries of packed samples
        if indexed:
            return self._answer_bool_index(func, args, kwargs)
        if func is aten.masked_select.default and self.get(args[0]) is None:
            return self._answer_masked_select(args[0], args[1])
        if not self._all_known((*args, *kwargs.values())):
            return False, None
        values = tree_map_only(torch.Tensor, self.get, (args, kwargs))
        return True, tree_map_only(torch.Tensor, self.made, func(*values[0], **values[1]))

    def made(self, value: torch.Tensor) -> torch.Tensor:
        """A contiguous meta tensor known to hold `value`."""
        meta = torch.empty(value.shape, dtype=value.dtype, device="meta")
        self.put(meta, value)
        return meta

    def _answer_masked_select(self, source: torch.Tensor, mask: torch.Tensor) -> tuple[bool, Any]:
        value = self.get(mask)
        if value is None:
            return False, None
        shape = torch.broadcast_shapes(source.shape, value.shape)
        return True, source.new_empty(int(value.expand(shape).sum()))

    def _answer_bool_index(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Rewrite boolean indices as the integer ones that the device kernel makes of them."""
        if not any(index is not None and index.dtype in _BOOL for index in args[1]):
            return False, None
        indices: list[torch.Tensor | None] = []
        for index in args[1]:
            value = None if index is None or index.dtype not in _BOOL else self.get(index)
            if index is not None and index.dtype in _BOOL and value is None:
                self.unknown_masks += 1
                return False, None
            indices += [index] if value is None else [self.made(part) for part in value.nonzero().unbind(1)]
        out = func(args[0], indices, *args[2:], **kwargs)
        if func.overloadpacket is aten.index:
            self.follow(func, (args[0], indices), kwargs, out)
        return True, out

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """After `func(*args, **kwargs)` gave `out` on meta: learn its values, or forget what it overwrote."""
        written, decides, makes_anything = _traits(func)
        decides = decides or (self.draws and func.overloadpacket in _DRAWN)
        if not written and not self._worth_following(func, out):
            return
        known = decides and self._all_known(args) and (not kwargs or self._all_known(tuple(kwargs.values())))
        if not known or (makes_anything and not _tensors((args, kwargs))):
            self._forget_written(args, kwargs, func, written)
            return
        self._compute(func, args, kwargs, out, written)

    def _all_known(self, values: Iterable[Any]) -> bool:
        """Whether `get` has an answer for every tensor among `values`."""
        for value in values:
            if isinstance(value, torch.Tensor):
                if value.is_meta and value.untyped_storage()._cdata not in self._twins:
                    return False
            elif isinstance(value, (tuple, list)) and not self._all_known(value):
                return False
        return True

    def _compute(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, written: tuple[int, ...]
    ) -> None:
        try:
            on_cpu = tree_map_only(torch.Tensor, self.get, (args, _without_device(func, kwargs)))
            result = func(*on_cpu[0], **on_cpu[1])
        except Exception:  # an op without a CPU kernel leaves the value unknown, which is always safe
            self._forget_written(args, kwargs, func, written)
            return
        for meta, value in zip(tree_flatten(out)[0], tree_flatten(result)[0], strict=True):
            if isinstance(meta, torch.Tensor) and self.get(meta) is None and meta.is_contiguous():
                self.put(meta, value.reshape(meta.shape).to(meta.dtype))

    def _worth_following(self, func: Any, out: Any) -> bool:
        if type(out) is torch.Tensor and out.numel() > MAX_ELEMENTS and not _may_be_counted(func, out):
            return False
        outputs = out if isinstance(out, tuple | list) else (out,)
        return any(
            isinstance(value, torch.Tensor)
            and value.is_meta
            and (value.numel() <= MAX_ELEMENTS or _may_be_counted(func, value))
            and value.untyped_storage()._cdata not in self._twins
            for value in outputs
        )

    def _forget_written(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], func: Any, written: tuple[int, ...]
    ) -> None:
        for index in written:
            name = func._schema.arguments[index].name
            value = args[index] if index < len(args) else kwargs.get(name)
            for tensor in _tensors(value):
                if tensor.device.type == "meta":
                    self._twins.pop(tensor.untyped_storage()._cdata, None)


@contextmanager
def remember_literals(known: KnownValues) -> Iterator[None]:
    """Within, `torch.tensor(data)` on meta keeps its data in `known`: its constructor drops them before
    dispatch.
    """
    _device_constructors()  # keeps what it finds by name: it must have seen the real one before another stands there
    original = torch.tensor

    def tensor(data: Any, **options: Any) -> torch.Tensor:
        with _disable_current_modes():
            data = tree_map_only(torch.Tensor, lambda item: _number(known, item), data)
        made: torch.Tensor = original(data, **options)
        if made.device.type == "meta" and made.numel() <= MAX_ELEMENTS and not options.get("requires_grad"):
            with _disable_current_modes():
                known.put(made, original(data, **{**options, "device": "cpu"}))
        return made

    torch.tensor = tensor
    try:
        yield
    finally:
        torch.tensor = original


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [value for value in tree_flatten(tree)[0] if isinstance(value, torch.Tensor)]


def _number(known: KnownValues, item: torch.Tensor) -> Any:
    value = known.get(item)
    return item if value is None else value


def asks_values(func: Any) -> bool:
    """Whether `KnownValues.answer` may have an answer for it."""
    packet = func.overloadpacket
    copies = func in (aten._local_scalar_dense.default, aten._to_copy.default)
    return copies or packet in _BOOL_INDEXED or packet in _DATA_DEPENDENT


@cache
def _traits(func: Any) -> tuple[tuple[int, ...], bool, bool]:
    """Positions of the arguments that it writes, whether inputs decide its values, whether it leaves them as they
    come where nothing is given to it."""
    written = tuple(index for index, argument in enumerate(func._schema.arguments) if _is_written(argument))
    name = func._schema.name.split("::")[-1]
    return written, not any(word in name for word in _RANDOM), name.startswith(("empty", "new_empty"))


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _to_cpu(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "cpu"


def _without_device(func: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The same keywords, made on the CPU where a device is named."""
    moved = {key: value for key, value in kwargs.items() if key != "device"}
    if any(argument.name == "device" for argument in func._schema.arguments):
        moved["device"] = torch.device("cpu")
    moved.pop("pin_memory", None)
    return moved
