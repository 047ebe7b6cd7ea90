"""What kernels take beyond their outputs, by device: temporaries that no dispatcher sees."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch

from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.kernels.attention import (
    FLASH_FORWARD,
    AttentionBackend,
    AttentionCall,
    attention_scratch,
    choose_cpu_backend,
    choose_cuda_backend,
    split_scratch,
)
from gpu_plan.planner.trace.kernels.cpu_scratch import cpu_scratch
from gpu_plan.planner.trace.kernels.operand_copies import operand_copies
from gpu_plan.planner.trace.kernels.row_sums import RowPartials, RowSemaphores, Sums
from gpu_plan.planner.trace.rules import Ruled, embedding_backward


class KernelProfile(ABC):
    """A device's kernels, as far as memory goes."""

    name: str

    @abstractmethod
    def scratch(self, operator: str, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
        """Bytes of each temporary that the operator allocates, holds together, and frees while it runs."""

    def ruled_scratch(self, operator: str, args: tuple[Any, ...]) -> list[Ruled]:
        """The same of temporaries whose bytes bend with their count; 0 bytes where the kernel does without."""
        return []

    @abstractmethod
    def attention_backend(self, call: AttentionCall) -> AttentionBackend:
        """Which kernel `scaled_dot_product_attention` runs."""

    fused_dropout = True
    """Whether dropout is one kernel with a boolean mask."""
    fused_rms_norm = True
    """Whether `torch.rms_norm` is one kernel."""
    fused_scans = True
    """Whether the fused sequence kernels (mamba_ssm, causal_conv1d, fla) are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaProfile(KernelProfile):
    """NVIDIA kernels for one compute capability."""

    capability: tuple[int, int] = (9, 0)
    sm_count: int = 132
    row_sums: bool = False
    """Whether sums over rows, hence gradients of biases, tell what they take beside their output."""
    splits: bool = False
    """Whether what flash attention takes to split keys is told by its rule, for sizes that are not recorded."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"cuda-sm{self.capability[0]}{self.capability[1]}x{self.sm_count}"

    def scratch(self, operator: str, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
        copies = operand_copies(operator, args, outputs) + _unreduced(operator, args, outputs)
        if operator == "_foreach_norm":
            return copies + _foreach_norm(args)
        if self.splits and operator in FLASH_FORWARD:
            return copies
        return copies + attention_scratch(operator, args, self.sm_count)

    def ruled_scratch(self, operator: str, args: tuple[Any, ...]) -> list[Ruled]:
        if self.splits and operator in FLASH_FORWARD:
            return split_scratch(operator, args, self.sm_count)
        if operator == "sum" and self.row_sums:
            return _summed_rows(args, self.sm_count, self._threads)
        if operator != "embedding_dense_backward":
            return []
        grad, indices, rows = args[0], args[1], int(args[2])
        return [Ruled(rule, indices.numel()) for rule in embedding_backward(rows, grad.shape[-1])]

    def attention_backend(self, call: AttentionCall) -> AttentionBackend:
        return choose_cuda_backend(self.capability, call)

    @property
    def _threads(self) -> int:
        """Of a multiprocessor (CUDA programming guide, technical specifications per compute capability)."""
        if self.capability[0] == 7:
            return 1024 if self.capability[1] == 5 else 2048
        return 1536 if self.capability in ((8, 6), (8, 7), (8, 9)) or self.capability[0] == 12 else 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuProfile(KernelProfile):
    """ATen's CPU kernels: what runs where there is no GPU, and what tests compare real runs with."""

    name: str = "cpu"
    fused_dropout: bool = False
    fused_rms_norm: bool = False
    fused_scans: bool = False
    threads: int = 1
    """Intra-op threads: kernels keep a buffer for each."""

    def scratch(self, operator: str, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
        copies = operand_copies(operator, args, outputs) + _unreduced(operator, args, outputs)
        return copies + cpu_scratch(operator, args, outputs, self.threads)

    def attention_backend(self, call: AttentionCall) -> AttentionBackend:
        return choose_cpu_backend(call)


def _unreduced(operator: str, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[int]:
    """pytorch aten/src/ATen/native/Loss.cpp: mse_loss_out, smooth_l1_loss_out: elements are computed, then reduced;
    ReduceOps.cpp: logsumexp_out_impl: so are they, less the largest of their row.
    """
    if operator == "logsumexp" and outputs:
        rows = outputs[0]
        return [rows.numel() * rows.element_size(), args[0].numel() * rows.element_size()]
    if operator not in ("mse_loss", "smooth_l1_loss") or not outputs or outputs[0].dim():
        return []
    return [outputs[0].untyped_storage().nbytes()]


def _summed_rows(args: tuple[Any, ...], sm_count: int, threads_per_sm: int) -> list[Ruled]:
    """Of what is summed over all its dimensions but the last."""
    x = args[0]
    dims = sorted(at % x.dim() for at in args[1]) if len(args) > 1 and args[1] else []
    if x.dim() < 2 or dims != list(range(x.dim() - 1)) or not x.is_contiguous() or not x.numel():
        return []
    sums = Sums(columns=x.shape[-1], sm_count=sm_count, threads_per_sm=threads_per_sm)
    rows = x.numel() // sums.columns
    return [Ruled(RowPartials(sums), rows), Ruled(RowSemaphores(sums), rows)]


_NORM_CHUNK = 65_536


def _foreach_norm(args: tuple[Any, ...]) -> list[int]:
    """pytorch aten/src/ATen/native/cuda/ForeachReduceOp.cu: foreach_tensor_norm_cuda: partial sums in fp32."""
    sizes = [tensor.numel() for tensor in args[0]]
    return [4 * len(sizes) * max(-(-size // _NORM_CHUNK) for size in sizes)] if any(sizes) else []


def kernel_profile(device: DeviceKind, *, row_sums: bool = False, splits: bool = False) -> KernelProfile:
    """The kernels that run on a kind of device; `row_sums` and `splits` as in `CudaProfile`."""
    if device.capability is None:
        return CpuProfile()
    return CudaProfile(capability=device.capability, sm_count=device.sm_count, row_sums=row_sums, splits=splits)
