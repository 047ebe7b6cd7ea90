"""What an operator makes on meta, remembered by what it was given: a model's layers ask the same again and again.

Most of torch's meta kernels are Python (`torch/_refs`, `torch/_meta_registrations.py`) and cost far more than the
tensor that comes of them; torch's own fake tensors keep a cache for that reason (`torch/_subclasses/fake_tensor.py`,
`FakeTensor.cache`). Only results that are new, dense from offset 0 and alone in their storage are kept; anything
else is asked of the operator each time.
"""

from collections.abc import Callable
from typing import Any

import torch

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.recording.operators.facts import tensors_in

_MOST = 50_000
"""Entries kept; beyond that all are forgotten: one process may trace many models."""

_Shape = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
_kept: dict[tuple[Any, ...], "Kept"] = {}
_alive: dict[int, Any] = {}
"""Operators whose addresses stand in keys: they hash in Python."""


class UnknownError(Exception):
    """An argument that a key cannot stand for."""


@dataclass(slots=True)
class Kept:
    """Of one operator and what it was given."""

    made: tuple[bool, tuple[_Shape, ...]] | None
    """Whether it makes one tensor alone, and how; None where the operator is asked each time."""
    flops: int | None = None
    """Its floating-point operations, once they were counted."""


def meta_result(
    func: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Kept | None]:
    """`run(*args, **kwargs)`, where `func` is the functional operator that it stands for; called below autograd. With
    it what is kept of it; None where that cannot be.

    Equal arguments (shapes, strides and types of tensors, values of all others) give equal results.
    """
    try:
        key = (
            id(func),
            id(run),
            torch.get_default_dtype(),
            key_of(args),
            key_of(tuple(kwargs.items())) if kwargs else (),
        )
        found = _kept.get(key)
    except (UnknownError, TypeError):  # TypeError: not hashable
        return run(*args, **kwargs), None
    if found is None:
        out = run(*args, **kwargs)
        if len(_kept) >= _MOST:
            _kept.clear()
        found = _kept[key] = Kept(_described(out, args, kwargs))
        _alive[id(func)], _alive[id(run)] = func, run
        return out, found
    if found.made is None:
        return run(*args, **kwargs), found
    alone, shapes = found.made
    made = [torch.empty_strided(size, stride, dtype=dtype, device="meta") for size, stride, dtype in shapes]
    return made[0] if alone else tuple(made), found


def key_of(value: Any) -> Any:
    """What equal arguments have in common; UnknownError where nothing can stand for them."""
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if not value.is_meta or value.layout is not torch.strided or value.is_complex():
            raise UnknownError
        return value.dtype, value.shape, value.stride()
    if kind is tuple or kind is list:
        return kind, tuple([key_of(item) for item in value])
    if isinstance(value, torch.Tensor):
        raise UnknownError
    return kind, value


def _described(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, tuple[_Shape, ...]] | None:
    """How to make such a result again; None where it cannot be."""
    alone = type(out) is torch.Tensor
    results = [out] if alone else list(out) if type(out) is tuple else []
    if not results or not all(map(_is_plain, results)):
        return None
    storages = [result.untyped_storage()._cdata for result in results]
    given = {tensor.untyped_storage()._cdata for tensor in tensors_in((*args, *kwargs.values()))}
    if len(set(storages)) < len(storages) or given & set(storages):
        return None
    return alone, tuple((tuple(one.shape), one.stride(), one.dtype) for one in results)


def _is_plain(tensor: Any) -> bool:
    """A tensor of its own kind that `empty_strided` would make with as many bytes."""
    if type(tensor) is not torch.Tensor or not tensor.is_meta or tensor.layout is not torch.strided:
        return False
    if tensor.storage_offset() or tensor.is_conj() or tensor.is_neg():
        return False
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    spanned = (last + 1) * tensor.element_size() if tensor.numel() else 0
    return bool(tensor.untyped_storage().nbytes() == spanned)
