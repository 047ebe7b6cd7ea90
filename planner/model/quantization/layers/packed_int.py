"""GPTQ's and AWQ's linear layers on the meta device. Read in ModelCloud/GPTQModel@f4c327a, which transformers uses."""

from typing import Any, ClassVar

import torch
from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.quantization.layers.base import StoredLinear, add_bias, empty, packed_mm
from gpu_plan.planner.model.quantization.scheme import Method, Scheme, Target
from gpu_plan.planner.model.source.headers import StoredTensor
from gpu_plan.planner.units import ceil_div, round_up

PACK_BITS = 32
MARLIN_GROUPS = (None, 32, 64, 128)
"""nn_modules/qlinear/marlin.py: MarlinLinear.SUPPORTS_GROUP_SIZE."""
MARLIN_COLUMNS = 64
"""SUPPORTS_OUT_FEATURES_DIVISIBLE_BY."""
AWQ_DENSE = 1024
"""Batch times sequence above which AWQ's gemm unpacks the whole weight (gemm_awq.py: AwqGemmFn.forward)."""
AWQ_SPLITS = 8


class PackedLinear(StoredLinear):
    """Integers packed into int32, scales and zero points per group of inputs.

    nn_modules/qlinear/__init__.py: GPTQQuantLinear packs along the inputs and keeps g_idx; AWQuantLinear packs along
    the outputs. Scales and bias take the type of the activations with the first product.
    """

    registered: ClassVar[torch.dtype | None] = None
    """Type of the real class's first parameter; None where all that it holds are buffers."""

    def __init__(self, linear: nn.Module, scheme: Scheme, target: Target, dtype: torch.dtype) -> None:
        super().__init__(linear, target)
        self.scale_dtype = dtype
        self.bits = scheme.bits
        self.group = scheme.group_size or self.in_features
        self.method = scheme.method
        self.desc_act = scheme.desc_act and scheme.group_size is not None
        if self.method is Method.AWQ and (
            self.out_features % (PACK_BITS // self.bits) or self.in_features % self.group
        ):
            raise InputError(
                f"AWQ packs {PACK_BITS // self.bits} outputs into one number and {self.group} inputs into one group:"
                f" a layer of {self.in_features} to {self.out_features} cannot be stored so"
            )
        self._keep_tensors()

    @property
    def groups(self) -> int:
        """Scales per output."""
        return ceil_div(self.in_features, self.group)

    @property
    def packed_shape(self) -> tuple[int, int]:
        """Of `qweight`, int32."""
        if self.method is Method.AWQ:
            return self.in_features, self.out_features * self.bits // PACK_BITS
        return ceil_div(self.in_features * self.bits, PACK_BITS), self.out_features

    @property
    def zeros_shape(self) -> tuple[int, int]:
        """Of `qzeros`, int32."""
        return self.groups, ceil_div(self.out_features * self.bits, PACK_BITS)

    def _keep_tensors(self) -> None:
        self.keep("qweight", self.packed_shape, torch.int32)
        self.keep("qzeros", self.zeros_shape, torch.int32)
        self.keep("scales", (self.groups, self.out_features), self.scale_dtype)
        if self.method is Method.GPTQ:
            self.keep("g_idx", (self.in_features,), torch.int32)

    def checkpoint(self) -> dict[str, StoredTensor]:
        """As published: GPTQ's g_idx is stored whether it is used or not; scales and bias are 16-bit."""
        held: dict[str, StoredTensor] = {
            "qweight": (self.packed_shape, "int32"),
            "qzeros": (self.zeros_shape, "int32"),
            "scales": ((self.groups, self.out_features), "float16"),
        }
        if self.method is Method.GPTQ:
            held["g_idx"] = ((self.in_features,), "int32")
        if self.bias is not None:
            held["bias"] = ((self.out_features,), "float16")
        return held

    def _stored(self) -> list[torch.Tensor]:
        return list(self.buffers(recurse=False))


class MarlinMeta(PackedLinear):
    """A fused kernel reads the packed weight; nothing is unpacked."""

    kernel = "GPTQModel nn_modules/qlinear/marlin.py: MarlinLinear, gptqmodel_ext/marlin/gptq_marlin.cu"
    registered = torch.int32

    def _keep_tensors(self) -> None:
        """post_init: weight and scales are repacked in place of the old ones; symmetric zero points are dropped."""
        self.keep("qweight", self.packed_shape, torch.int32)
        self.keep("scales", (self.groups, self.out_features), self.scale_dtype)
        self.keep("workspace", (max(self.target.sm_count, 128),), torch.int32)
        if self.method is Method.AWQ:
            self.keep("qzeros", self.zeros_shape, torch.int32)
        elif self.desc_act:
            self.keep("g_idx", (self.in_features,), torch.int32)
            self.keep("g_idx_sort_indices", (self.in_features,), torch.int32)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """gptq_marlin.cu: gptq_marlin_gemm: the fp32 buffer of its reduction, and ordered inputs for desc_act."""
        rows = x.reshape(-1, self.in_features)
        count = rows.shape[0]
        held = [empty((self.target.sm_count * min(round_up(count, 16), 64) * 256,), torch.float32)]
        if self.desc_act:
            held.append(empty((count, self.in_features), x.dtype))
        bias = [] if self.bias is None else [self.bias]
        out = packed_mm(rows, [*self._stored(), *bias], self.out_features, x.dtype)
        del held
        return out.view(*x.shape[:-1], self.out_features)


class TritonMeta(PackedLinear):
    """GPTQ where no fused kernel takes the layer, and where it is trained: the weight is unpacked for each product."""

    kernel = "GPTQModel nn_modules/triton_utils/dequant.py: quant_matmul"

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """tritonv2.py: TritonV2Linear.forward."""
        rows = x.reshape(-1, self.in_features)
        weight = empty((self.in_features, self.out_features), x.dtype)
        out = (rows @ weight).view(*x.shape[:-1], self.out_features)
        return add_bias(out, self.bias).to(x.dtype)

    def gradient(self, ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """dequant.py: QuantLinearFunction.backward."""
        rows = grad.reshape(-1, self.out_features)
        weight = empty((self.in_features, self.out_features), grad.dtype)
        return (rows @ weight.t()).view(*grad.shape[:-1], self.in_features)


class TorchGptqMeta(PackedLinear):
    """GPTQ in torch's own operators, for 3 bits and for layers in training mode."""

    kernel = "GPTQModel nn_modules/qlinear/__init__.py: PackableQuantLinear.dequantize_weight"

    def _unpacked(self, dtype: torch.dtype) -> torch.Tensor:
        """dequantize_weight: codes in int8, the scales and zero points spread over all inputs."""
        small = torch.int8 if self.bits < 8 else torch.int16
        codes = self._codes(small)
        zeros = empty((self.groups, self.out_features), small)
        spread = self.scales[self.g_idx.long()]
        weight = spread * (codes - zeros[self.g_idx.long()])
        return weight.to(dtype)

    def _codes(self, small: torch.dtype) -> torch.Tensor:
        """[in_features, out_features], one element to a number."""
        rows, columns = self.in_features, self.out_features
        if self.bits == 3:
            part = empty((rows // 32, 3, 12, columns), torch.int32) & 0x7
            return torch.cat([part[:, 0, :11], part[:, 1, 1:12], part[:, 2, 1:11]], dim=1).reshape(rows, columns)
        shifted = empty((self.packed_shape[0], PACK_BITS // self.bits, columns), torch.int32).to(small)
        return torch.bitwise_and(shifted, 2**self.bits - 1).reshape(-1, columns)[:rows]

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """torch.py: TorchLinear._forward_eager."""
        rows = x.reshape(-1, self.in_features)
        out = torch.matmul(rows, self._unpacked(x.dtype)).view(*x.shape[:-1], self.out_features)
        return add_bias(out, self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Plain autograd, which keeps the unpacked weight until backward: nothing detaches it."""
        if not (torch.is_grad_enabled() and x.requires_grad):
            return self.product(x)
        weight = self._unpacked(x.dtype)
        out = torch.matmul(x.reshape(-1, self.in_features), weight).view(*x.shape[:-1], self.out_features)
        return add_bias(out, self.bias)


class AwqGemmMeta(PackedLinear):
    """AWQ's own kernel, which also trains: it unpacks the weight above 1024 rows."""

    kernel = "GPTQModel nn_modules/qlinear/gemm_awq.py: AwqGemmFn, gptqmodel_ext/awq/quantization/gemm_cuda_gen.cu"
    partial_dtype = torch.float32
    dense_rows = AWQ_DENSE + 1

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """AwqGEMMLinear.forward in half precision."""
        half = x.dtype if x.dtype in (torch.float16, torch.bfloat16) else torch.float16
        x16 = x.to(half).contiguous()
        rows = x.numel() // self.in_features
        batch_rows = x.shape[0] * x.shape[1] if x.dim() > 2 else rows
        if batch_rows >= self.dense_rows:
            out = torch.matmul(x16, empty((self.in_features, self.out_features), half))
        else:
            stored, wide = self._stored(), self.partial_dtype
            partial = packed_mm(x16.reshape(rows, -1), stored, self.out_features, wide, splits=AWQ_SPLITS)
            out = partial.sum(0, dtype=half)
            del partial
        if self.bias is not None:
            out = out + self.bias
        return out.to(x.dtype).view(*x.shape[:-1], self.out_features)

    def save(self, ctx: Any, x: torch.Tensor) -> None:
        """ctx.save_for_backward(x, ...), though backward does not need it."""
        ctx.input = x

    def gradient(self, ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """AwqGemmFn.backward: one copy of the unpacked weight for every sample of the batch."""
        weight = empty((self.in_features, self.out_features), ctx.input.dtype).to(grad.dtype)
        if grad.dim() < 3:
            return grad @ weight.t()
        return grad.bmm(weight.transpose(0, 1).unsqueeze(0).repeat(grad.shape[0], 1, 1))
