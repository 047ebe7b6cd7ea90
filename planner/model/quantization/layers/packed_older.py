"""GPTQ's and AWQ's layers as the libraries ran them that most published figures were measured with.

AutoGPTQ 0.7: auto_gptq/nn_modules/qlinear/qlinear_exllama.py (4 bits) and qlinear_cuda_old.py (other bits);
AutoAWQ 0.2 (casper-hansen/AutoAWQ@88e4c76): awq/modules/linear/gemm.py. All tensors of the checkpoint stay.
"""

import torch

from gpu_plan.planner.model.quantization.layers.base import empty, packed_mm
from gpu_plan.planner.model.quantization.layers.packed_int import AwqGemmMeta, PackedLinear

SWITCH_ROWS = 128
"""AutoGPTQ qlinear_cuda_old.py: kernel_switch_threshold: fewer rows are multiplied with the packed weight."""
DENSE_ROWS = 1024
"""AutoAWQ gemm.py: FP16_MATMUL_HEURISTIC_CONDITION."""


class ExllamaMeta(PackedLinear):
    """Four bits: one buffer for the whole model takes an unpacked weight (`shared_buffer`)."""

    kernel = "AutoGPTQ auto_gptq/nn_modules/qlinear/qlinear_exllama.py: ext_q4_matmul"

    @property
    def buffer_elements(self) -> int:
        """AutoGPTQ modeling/_utils.py: autogptq_post_init: max_dq_buffer_size."""
        rows, columns = self.packed_shape
        return rows * columns * 8

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """The output alone."""
        rows = x.reshape(-1, self.in_features)
        out = packed_mm(rows, self._stored(), self.out_features, x.dtype).view(*x.shape[:-1], self.out_features)
        return out if self.bias is None else out.add_(self.bias)


class CudaOldMeta(PackedLinear):
    """Other bits: a kernel in fp32 for few rows, else torch's operators on the whole weight."""

    kernel = "AutoGPTQ auto_gptq/nn_modules/qlinear/qlinear_cuda_old.py: QuantLinear.forward"

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """QuantLinear.forward with use_cuda_fp16 off for 8 bits."""
        rows = x.reshape(-1, self.in_features)
        if rows.shape[0] < SWITCH_ROWS:
            scales, wide = self.scales.float(), rows.float()
            out = packed_mm(wide, [self.qweight, self.qzeros, scales], self.out_features, torch.float32)
        else:
            out = torch.matmul(rows, self._unpacked(x.dtype))
        out = out.to(x.dtype).view(*x.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias

    def _unpacked(self, dtype: torch.dtype) -> torch.Tensor:
        small = torch.int16 if self.bits == 8 else torch.int8
        codes = empty((self.packed_shape[0], 32 // self.bits, self.out_features), torch.int32).to(small)
        grouped = codes.reshape(self.groups, -1, self.out_features)
        zeros = empty((self.groups, 1, self.out_features), small) + 1
        weight = self.scales.reshape(self.groups, 1, self.out_features).to(dtype) * (grouped - zeros)
        return weight.reshape(-1, self.out_features)


class AutoAwqMeta(AwqGemmMeta):
    """AutoAWQ adds its partial products up in half precision, and unpacks from 1024 rows on."""

    kernel = "AutoAWQ awq/modules/linear/gemm.py: WQLinearMMFunction"
    partial_dtype = torch.float16
    dense_rows = DENSE_ROWS


def shared_buffer(layers: list[ExllamaMeta]) -> torch.Tensor:
    """autogptq_post_init: `temp_dq` of a device, fp16."""
    return empty((1, max(layer.buffer_elements for layer in layers)), torch.float16)
