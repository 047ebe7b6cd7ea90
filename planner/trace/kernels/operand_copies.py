"""Copies of operands that ATen makes on every device around a kernel, which nothing above it sees; bytes each."""

import math
from collections.abc import Callable
from typing import Any

import torch

Copies = Callable[[tuple[Any, ...], list[torch.Tensor]], list[int]]

_HALF = (torch.float16, torch.bfloat16)


def operand_copies(operator: str, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """Bytes of each copy that lives while one call runs."""
    rule = _RULES.get(operator)
    return rule(args, outputs) if rule is not None else []


def _nbytes(tensor: torch.Tensor) -> int:
    count: int = tensor.numel() * tensor.element_size()
    return count


def _strided(*operands: Any) -> list[int]:
    """`contiguous()` of the operands that are not."""
    return [_nbytes(o) for o in operands if isinstance(o, torch.Tensor) and not o.is_contiguous()]


def _embedding(args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """pytorch aten/src/ATen/native/Embedding.cpp: embedding_symint reshapes the indices to one dimension."""
    return _strided(args[1]) if args[1].dim() > 1 else []


def _embedding_backward(args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """The same file and cuda/Embedding.cu: embedding_dense_backward makes gradient and indices contiguous."""
    return _strided(args[0], args[1])


def _layer_norm(args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """pytorch aten/src/ATen/native/layer_norm.cpp and cuda/layer_norm_kernel.cu: expect_contiguous."""
    return _strided(args[0])


def _layer_norm_backward(args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    return _strided(args[0], args[1])


def _convolution(args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """pytorch aten/src/ATen/native/Convolution.cpp: _convolution makes the input dense in the backend's format."""
    return _undense(args[0], args[1])


def _convolution_backward(args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """The same file: convolution_backward does so for the gradient, the input and the weight."""
    return _undense(args[0], args[1], args[2])


def _undense(*operands: torch.Tensor) -> list[int]:
    return [_nbytes(o) for o in operands if not (o.is_contiguous() or _channels_last(o))]


def _channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and bool(tensor.is_contiguous(memory_format=torch.channels_last))


def _reduction(args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """The input in the result's type (pytorch aten/src/ATen/native/ReduceOpsUtils.h: make_reduction); 16-bit
    inputs are summed to fp32 without one.
    """
    if args[0].dtype in _HALF and outputs[0].dtype is torch.float32:
        return []
    return _cumulative(args, outputs)


def _cumulative(args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """pytorch aten/src/ATen/native/ReduceOps.cpp: impl_func_cum_ops."""
    source, result = args[0], outputs[0]
    return [] if source.dtype is result.dtype else [math.prod(source.shape) * result.element_size()]


def _largest(args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """pytorch aten/src/ATen/native/ReduceAllOps.cpp: max and min over all elements take a contiguous input."""
    return _strided(args[0]) if len(args) == 1 else []


_RULES: dict[str, Copies] = {
    "max": _largest,
    "min": _largest,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "sum": _reduction,
    "cumsum": _cumulative,
    "cumprod": _cumulative,
}
