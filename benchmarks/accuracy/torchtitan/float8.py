"""torchao's float8 linear layers as torchtitan's runs of January 2025 had them, without torch.compile.

Mirrored from pytorch/ao 0.8.0 torchao/float8/float8_linear.py: Float8Linear.forward and
manual_float8_matmul_with_args_in_float8, whose casts stand before the product, and 0.9.0
torchao/prototype/float8nocompile/float8nocompile_linear.py with its Triton kernels. What the casts themselves compute
is the installed torchao's, which is the same. Custom functions have untyped contexts, hence Any.
"""

from typing import Any

import torch
from torch import nn
from torchao.float8.config import Float8LinearConfig
from torchao.float8.float8_scaling_utils import NoopFwToFloat8BwDynamic, hp_tensor_to_float8_dynamic
from torchao.float8.float8_training_tensor import GemmInputRole, LinearMMConfig, ScaledMMConfig

from benchmarks.accuracy.torchtitan.model import Float8

_CONFIG = Float8LinearConfig()
_EXACT = ScaledMMConfig(False, False, False, False)
_PRODUCTS = LinearMMConfig(ScaledMMConfig(False, True, False, False), _EXACT, _EXACT)


class Float8Linear(nn.Linear):
    """Input and weight are cast first, so that what is kept for backward is float8."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        cast: Any = hp_tensor_to_float8_dynamic
        x = cast(input, _CONFIG.cast_config_input.target_dtype, _PRODUCTS, gemm_input_role=GemmInputRole.INPUT)
        w = cast(self.weight, _CONFIG.cast_config_weight.target_dtype, _PRODUCTS, gemm_input_role=GemmInputRole.WEIGHT)
        output: Any = _Product.apply(x, w.t())
        result: torch.Tensor = NoopFwToFloat8BwDynamic.apply(
            output, _PRODUCTS, _CONFIG.cast_config_grad_output.target_dtype
        )
        return result


class _Product(torch.autograd.Function):
    """manual_float8_matmul_with_args_in_float8."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight_t: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight_t)
        shape = x.shape
        flat = torch.mm(x.reshape(-1, shape[-1]), weight_t)
        return flat.reshape(*shape[:-1], flat.shape[-1])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight_t = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1])
        of_input = torch.mm(grad, weight_t.t())
        of_weight = torch.mm(grad.t(), x.reshape(-1, x.shape[-1]))
        return of_input.reshape(*grads[0].shape[:-1], of_input.shape[-1]), of_weight.t()


class Float8LinearNoCompile(nn.Linear):
    """`recomputed`: backward makes the float8 columns anew (no_precompute_for_backward, meant for checkpointing)."""

    recomputed = False

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _NoCompile.apply(input, self.weight, self.recomputed)
        return result


def _cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """One output of a kernel of fp8_dynamic_tensorwise.py; its scale and maximum are single numbers."""
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    out.copy_(x)
    return out


class _NoCompile(torch.autograd.Function):
    """matmul_with_args_in_hp and matmul_with_args_in_hp_no_precompute_for_backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, recomputed: bool) -> torch.Tensor:
        e4m3 = torch.float8_e4m3fn
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        scale = torch.empty((), dtype=torch.float32, device=x.device)
        rows = _cast(x, e4m3)
        columns = None if recomputed else _cast(x, e4m3)
        w = _cast(weight, e4m3)
        out = torch._scaled_mm(rows, w.t(), scale_a=scale, scale_b=scale, out_dtype=x.dtype)
        ctx.save_for_backward(x if columns is None else columns, weight)
        ctx.recomputed, ctx.dtype = recomputed, x.dtype
        return out.reshape(*shape[:-1], out.shape[-1])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        kept, weight = ctx.saved_tensors
        shape = grads[0].shape
        grad = grads[0].contiguous().reshape(-1, shape[-1])
        scale = torch.empty((), dtype=torch.float32, device=grad.device)
        rows, rows_t = _cast(grad, torch.float8_e5m2), _cast(grad, torch.float8_e5m2)
        w = _cast(weight, torch.float8_e4m3fn)
        of_input = torch._scaled_mm(
            rows, w.view(w.shape[1], w.shape[0]).t(), scale_a=scale, scale_b=scale, out_dtype=ctx.dtype
        )
        of_input = of_input.reshape(*shape[:-1], of_input.shape[-1])
        columns = _cast(kept, torch.float8_e4m3fn) if ctx.recomputed else kept
        of_weight = torch._scaled_mm(
            rows_t.view(rows_t.shape[1], rows_t.shape[0]),
            columns.view(columns.shape[1], columns.shape[0]).t(),
            scale_a=scale,
            scale_b=scale,
            out_dtype=ctx.dtype,
        )
        return of_input, of_weight, None


def convert(model: nn.Module, how: Float8, *, checkpointed: bool) -> None:
    """torchtitan/float8.py: convert_to_float8_training: every linear layer but `output`.

    `checkpointed`: whether any block is; float8nocompile_linear_utils.py has one setting for the whole model.
    """
    for name, module in list(model.named_modules()):
        if type(module) is not nn.Linear or name == "output":
            continue
        kind = Float8Linear if how == "tensorwise" else Float8LinearNoCompile
        made = kind(module.in_features, module.out_features, bias=False, device="meta")
        if isinstance(made, Float8LinearNoCompile):
            made.recomputed = checkpointed
        model.set_submodule(name, made)
