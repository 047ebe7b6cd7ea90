"""Temporaries of ATen's CPU kernels, by operator; sizes in bytes, all alive together while the operator runs.

Not told here: the reordered copies that oneDNN makes of a convolution's operands, which depend on the processor.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

_HALF = (torch.float16, torch.bfloat16)

Scratch = Callable[[tuple[Any, ...], list[torch.Tensor], int], list[int]]
"""(arguments, outputs, intra-op threads) -> bytes of each temporary."""


def cpu_scratch(operator: str, args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """Bytes of each temporary of one call on `threads` intra-op threads."""
    formula = _FORMULAS.get(operator)
    return [size for size in formula(args, outputs, threads) if size] if formula is not None else []


def _flash_blocks(queries: int, keys: int) -> tuple[int, int]:
    """Rows and columns of one tile (cpu/FlashAttentionKernel.cpp: flash_attention_kernel_impl)."""
    rows = 256 if queries >= 768 else 64 if queries >= 192 else 32
    return min(rows, queries), min(512, keys)


def _flash_forward(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """pytorch aten/src/ATen/native/cpu/FlashAttentionKernel.cpp: cpu_flash_attention (without packing)."""
    query, key = args[0], args[1]
    rows, columns = _flash_blocks(query.shape[2], key.shape[2])
    tile = rows * columns + 2 * rows + rows * query.shape[3]
    half = 2 * threads * rows * columns if query.dtype in _HALF else 0
    return [4 * threads * tile, half]


def _flash_backward(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """The same file: cpu_flash_attention_backward; row sums are made by every thread that gets work."""
    query, key = args[1], args[2]
    rows, columns = _flash_blocks(query.shape[2], key.shape[2])
    tile = 2 * rows * columns
    half = 2 * threads * tile if query.dtype in _HALF else 0
    busy = min(threads, query.shape[0] * query.shape[1])
    return [4 * threads * tile, half, *([4 * rows] * busy)]


def _layer_norm_backward(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """pytorch aten/src/ATen/native/cpu/layer_norm_kernel.cpp: LayerNormBackwardKernelImplInternal."""
    grad, normalized = args[0], math.prod(args[2])
    affine = args[5] is not None or args[6] is not None
    return [2 * threads * normalized * grad.element_size()] if affine else []


def _batch_norm(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """aten/src/ATen/native/cpu/batch_norm_kernel.cpp: batch_norm_cpu_contiguous_impl: alpha and beta per channel."""
    channels = args[0].shape[1]
    return [channels * args[0].element_size()] * 2


def _batch_norm_backward(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """aten/src/ATen/native/Normalization.cpp: batch_norm_backward_cpu_template makes the input's gradient twice."""
    wants_input = bool(args[9][0])
    return [args[1].numel() * args[1].element_size()] if wants_input else []


def _sort(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """pytorch aten/src/ATen/native/cpu/SortingKernel.cpp: the indices of one row, to fill every row."""
    dims = [arg for arg in args[1:] if isinstance(arg, int) and not isinstance(arg, bool)]
    values: torch.Tensor = args[0]
    return [8 * values.shape[dims[0] if dims else -1]] if values.dim() else []


def _safe_softmax(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """pytorch aten/src/ATen/native/transformers/attention.cpp: _safe_softmax; which scores are minus infinity,
    and which rows are so altogether.
    """
    scores = args[0]
    rows: int = scores.numel() // max(1, scores.shape[args[1]])
    return [scores.numel(), rows]


def _mean(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """pytorch aten/src/ATen/native/ReduceOps.cpp: mean_out on CPU sums 16-bit inputs in fp32."""
    source = args[0]
    return [4 * source.numel()] if source.dtype in _HALF else []


def _histogram(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """pytorch aten/src/ATen/native/Histogram.cpp: histogram_histc computes bin edges of the input's type."""
    return [(outputs[0].numel() + 1) * args[0].element_size()]


_TRANSPOSE_BLOCK = 60


def _contiguous(args: tuple[Any, ...], outputs: list[torch.Tensor], threads: int) -> list[int]:
    """pytorch aten/src/ATen/native/Copy.cpp: copy_transpose_valid, copy_same_type_transpose_; one block of a matrix
    that is copied into its transpose.
    """
    source, size = args[0], _TRANSPOSE_BLOCK**2
    if len(args) > 1:
        return []
    turned = source.dim() == 2 and source.stride() == (1, source.shape[0]) and source.numel() >= size
    return [size * source.element_size()] if turned else []


_FORMULAS: dict[str, Scratch] = {
    "_scaled_dot_product_flash_attention_for_cpu": _flash_forward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _flash_backward,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "sort": _sort,
    "_safe_softmax": _safe_softmax,
    "histc": _histogram,
    "contiguous": _contiguous,
    "max": _contiguous,
    "min": _contiguous,
    "mean": _mean,
}
