"""What a script makes the default: a device for new tensors, an old tensor type; and tensors made by such a type.

torch/__init__.py: set_default_device, set_default_tensor_type. A build without CUDA refuses both, and has classes of
the old names (torch/cuda/__init__.py: FloatTensor, ...) that cannot be called.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch

OLD_TYPES: Mapping[str, torch.dtype] = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}
_HOME = "torch.cuda."


def _old_type(name: str, dtype: torch.dtype) -> Any:
    """Called with sizes it is a tensor of them, with data one of the data, as the legacy constructors are."""

    def made(*given: Any, **_: Any) -> torch.Tensor:
        if not given or all(isinstance(one, int) for one in given):
            return torch.empty(given or (0,), dtype=dtype, device="cuda")
        data = given[0]
        if isinstance(data, torch.Size):
            return torch.empty(data, dtype=dtype, device="cuda")
        return torch.as_tensor(data, dtype=dtype).to("cuda")

    kind = type(name, (), {"__new__": staticmethod(lambda _, *given, **options: made(*given, **options))})
    kind.__module__, kind.__qualname__ = _HOME.rstrip("."), name
    return kind


def gpu_dtype(kind: Any) -> torch.dtype | None:
    """The dtype of `torch.cuda.FloatTensor` and its like, by name or as a class; None for anything else."""
    name = kind if isinstance(kind, str) else f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"
    return OLD_TYPES.get(name.removeprefix(_HOME)) if name.startswith(_HOME) else None


def host_dtype(kind: Any) -> torch.dtype | None:
    """The same of `torch.FloatTensor` and its like."""
    name = kind if isinstance(kind, str) else f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"
    return OLD_TYPES.get(name.removeprefix("torch.")) if name.startswith("torch.") else None


def type_name(dtype: torch.dtype, on_gpu: bool) -> str:
    """What `tensor.type()` says of one."""
    name = next((name for name, one in OLD_TYPES.items() if one is dtype), "FloatTensor")
    return f"{_HOME if on_gpu else 'torch.'}{name}"


@contextlib.contextmanager
def defaults(is_planned: Callable[[Any], bool], on_gpu: Callable[[bool], None]) -> Iterator[None]:
    """Within, a script chooses where new tensors lie: `on_gpu` takes whether on the planned device."""
    set_device, set_type = torch.set_default_device, torch.set_default_tensor_type

    def set_default_device(device: Any) -> None:
        planned = device is not None and is_planned(device)
        on_gpu(planned)
        if not planned:
            set_device(device)

    def set_default_tensor_type(kind: Any) -> None:
        dtype = gpu_dtype(kind)
        on_gpu(dtype is not None)
        if dtype is None:
            set_type(kind)
        else:
            torch.set_default_dtype(dtype)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch, "set_default_device", set_default_device))
        stack.enter_context(mock.patch.object(torch, "set_default_tensor_type", set_default_tensor_type))
        for name, dtype in OLD_TYPES.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, _old_type(name, dtype)))
        yield
