"""Operators that CUDA has but the meta device lacks or restricts, as shape functions, each with its source.

Used by the trace's dispatch mode in place of the operator: the result has the shape, dtype and strides of
the CUDA kernel's, and what the kernel saves is among its outputs.
"""

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def grouped_mm(
    a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None = None, *rest: Any, **options: Any
) -> torch.Tensor:
    """`[S, K] x [E, K, N] -> [S, N]`, and for the weight's gradient `[K, S] x [S, N] -> [E, K, N]`.

    torch's meta kernel takes bf16 only; CUDA computes other dtypes by a loop over groups with the same output
    (pytorch aten/src/ATen/native/cuda/GroupedBlas.cpp `_grouped_mm_cuda`). Rows are padded to 16 bytes as in
    `create_grouped_gemm_output_tensor`.
    """
    out_dtype = options.get("out_dtype") or a.dtype
    if a.dim() == 2 and b.dim() == 2:
        if offs is None:
            raise ValueError("grouped_mm of two matrices needs offsets")
        shape: tuple[int, ...] = (offs.shape[0], a.shape[0], b.shape[1])
    elif a.dim() == 2 or b.dim() == 2:
        shape = (a.shape[-2], b.shape[-1])
    else:
        shape = (a.shape[0], a.shape[1], b.shape[-1])
    align = max(1, 16 // out_dtype.itemsize)
    padded = -(-shape[-1] // align) * align
    strides = (shape[-2] * padded, padded, 1)[-len(shape) :]
    return torch.empty_strided(shape, strides, dtype=out_dtype, device="meta")


def ctc_loss(
    log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: torch.Tensor, *rest: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss per sample `[B]`, log alpha `[B, T, 2U + 1]`) for log probabilities `[T, B, V]`.

    pytorch aten/src/ATen/native/cuda/LossCTC.cu `ctc_loss_gpu_template`; U is the longest target, here the
    mean length of concatenated targets, which equals it when nothing is padded.
    """
    batch = log_probs.shape[1] if log_probs.dim() == 3 else 1
    longest = targets.shape[1] if targets.dim() == 2 else -(-targets.shape[0] // batch)
    loss = log_probs.new_empty(batch)
    return loss, log_probs.new_empty(batch, log_probs.shape[0], 2 * longest + 1)


def ctc_loss_backward(grad: torch.Tensor, log_probs: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
    """Gradient `[T, B, V]` of the log probabilities (same file, `ctc_loss_backward_gpu_template`)."""
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


def reduced_loss(operator: Any) -> Callable[..., torch.Tensor]:
    """`operator(input, target, ...)`, whose scalar keeps the storage of the loss of every element.

    pytorch aten/src/ATen/native/Loss.cpp: meta functions of mse_loss and smooth_l1_loss allocate the output for all
    elements, then resize_({}) it, which frees nothing; soft_margin_loss_out and binary_cross_entropy (Loss.cpp and
    cuda/Loss.cu) write the elements into it and resize it afterwards. The meta device has a scalar of its own there.
    """

    def run(given: torch.Tensor, target: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        made: torch.Tensor = operator(given, target, *rest, **options)
        if made.dim() or not given.is_meta:
            return made
        shape = torch.broadcast_shapes(given.shape, target.shape)
        return torch.empty(shape, dtype=made.dtype, device="meta").resize_(())

    return run


_KEEP_ELEMENTS = ("mse_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy")


def in_place(*args: Any, **options: Any) -> None:
    """One kernel that updates what it is given, no more (pytorch aten/src/ATen/native/cuda/Fused*Kernel.cu)."""


def into_out(*args: Any, out: torch.Tensor, **options: Any) -> torch.Tensor:
    """A kernel that writes into what it is given, in its shape."""
    return out


def drawn(operator: Any) -> Callable[..., torch.Tensor]:
    """`operator(given, ...)`, which fills what it is given with random numbers: one kernel, and nothing on meta, where
    torch goes a long way in Python (torch/_refs/__init__.py: exponential) to the tensor that it was given.
    """

    def run(given: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        made: torch.Tensor = given if given.is_meta else operator(given, *rest, **options)
        return made

    return run


META_OPS: dict[Any, Callable[..., Any]] = {
    **{
        getattr(getattr(aten, name), overload): in_place
        for name in ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")
        for overload in getattr(aten, name).overloads()
        if overload in ("default", "tensor_lr")
    },
    **{getattr(aten, name).default: reduced_loss(getattr(aten, name).default) for name in _KEEP_ELEMENTS},
    aten.exponential_.default: drawn(aten.exponential_.default),
    aten._grouped_mm.default: grouped_mm,
    aten._scaled_mm.out: into_out,
    aten._ctc_loss.Tensor: ctc_loss,
    aten._ctc_loss_backward.Tensor: ctc_loss_backward,
}
"""Overload to the function to call instead."""
