"""TRL's tiled log-probabilities and divergences as the planned GPU computes them: Triton kernels that write in place.

On devices without Triton the library folds each tile with torch's operators, a dozen temporaries of the tile's size
that no GPU ever holds. Of a launched kernel nothing is to be seen on meta: it writes over tensors that stand.

trl 1.16: kernels/chunked_logprob.py (_use_triton, _forward_kernel, _backward_kernel, _addmm_fp32), kernels/
chunked_divergence.py (_stats_kernel, _jsd_kernel, _backward_kernel, _project), trainer/utils.py (add_fused_lm_head).
"""

import types
from typing import Any

import torch

from gpu_plan.planner.capture.answers.placement import is_planned
from gpu_plan.planner.capture.imports import when_imported

_MODULES = ("trl.kernels.chunked_logprob", "trl.kernels.chunked_divergence")


def tiles_in_place() -> None:
    """For the rest of the process, in modules that are imported now or later."""
    for name in _MODULES:
        when_imported(name, _take)


class _Launched:
    """A Triton kernel: `kernel[grid](...)`, which allocates nothing."""

    def __getitem__(self, grid: Any) -> Any:
        return _written


def _written(*args: Any, **kwargs: Any) -> None:
    """What the kernel writes stands already, and nobody reads its values."""


def _take(module: Any) -> None:
    for name in [name for name in vars(module) if name.endswith("_kernel")]:
        setattr(module, name, _Launched())
    module._use_triton = lambda device: is_planned(device)
    module._addmm_fp32 = _added
    if hasattr(module, "_project"):
        module._project = _projected
    if not hasattr(module, "triton"):
        module.triton = types.SimpleNamespace(cdiv=lambda whole, part: -(-whole // part))


def _added(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """_addmm_fp32: on CUDA a 16-bit product is added to fp32 sums without a temporary."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        torch.mm(left, right, out=_as(total, left.dtype))


def _projected(
    tile: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    start: int,
    end: int,
    dtype: torch.dtype,
) -> None:
    """_project: on CUDA a 16-bit product is written as fp32 without a temporary."""
    words = weight[start:end].to(dtype).t()
    torch.mm(rows.to(dtype), words, out=tile if dtype == tile.dtype else _as(tile, dtype))
    if bias is not None:
        tile.add_(bias[start:end].float())


def _as(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A stretch of the tensor's own memory in the product's type: meta has no product with another type of result."""
    return tensor.view(dtype)[:, : tensor.shape[1]]
