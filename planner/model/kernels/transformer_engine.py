"""Transformer Engine's float8 layers as accelerate sets them up, on the meta device: what they allocate and keep.

Transformer Engine computes on CUDA alone, so its layers are written out here from the source of release 2.9, kernel by
kernel: transformer_engine/pytorch/module/linear.py (_Linear), module/base.py (grad_output_preprocess, get_workspace),
tensor/storage/float8_tensor_storage.py (update_usage), csrc/quantizer.cpp (Float8Quantizer::create_tensor),
csrc/extensions/bias.cpp (bgrad_quantize) and ops/basic/layer_norm.py. The recipe is accelerate's default,
DelayedScaling with 1024 past maxima (utils/dataclasses.py: TERecipeKwargs). Products stand as `_scaled_mm`, which has
the same operands and result. Custom functions have untyped contexts, hence Any.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError

_HISTORY = 1024
_FORWARD_SCALES, _BACKWARD_SCALES = 3, 2
"""base.py: set_meta_tensor: input, weight and output of the one product; its output's and its input's gradient."""
_ROWS = 16
"""gemm/cublaslt_gemm.cu: CanonicalizeGemmInput: leading dimensions of float8 operands, rows once transposed."""
_BIAS_TILE = 256
"""Rows that one tile of transpose/cast_transpose_fusion.cu sums, with 8 bytes stored at once; fewer for small ones."""


@dataclass(frozen=True, slots=True)
class TeDevice:
    """What the layers ask of the GPU."""

    capability: tuple[int, int]
    sm_count: int

    @property
    def transposes(self) -> bool:
        """Whether float8 products need both operands in one layout (nvte_is_non_tn_fp8_gemm_supported)."""
        number = 10 * self.capability[0] + self.capability[1]
        return not (100 <= number < 120 or number >= 130)

    @property
    def workspace_bytes(self) -> int:
        """base.py: get_cublas_workspace_size_bytes; one for the process, made at the first product and kept."""
        return 32 * 2**20 + 1024 if self.capability[0] >= 9 else 4 * 2**20


@dataclass(frozen=True, slots=True)
class _Quantised:
    """A Float8Tensor: its numbers by rows, those by columns where the device needs them, and the inverse scale."""

    data: torch.Tensor | None
    transposed: torch.Tensor | None
    scale: torch.Tensor
    shape: tuple[int, int]

    def rows(self) -> torch.Tensor:
        """[rows, columns]."""
        assert self.data is not None
        return self.data.view(self.shape)

    def columns(self) -> torch.Tensor:
        """[columns, rows]; on devices that multiply in any layout the same storage."""
        held = self.data if self.transposed is None else self.transposed
        assert held is not None
        return held.view(self.shape[1], self.shape[0])


def _quantise(x: torch.Tensor, dtype: torch.dtype, *, columns: bool) -> _Quantised:
    """Float8Quantizer::create_tensor and quantize: cast and transpose are one kernel."""
    x = x.contiguous()
    shape = (x.numel() // x.shape[-1], x.shape[-1])
    scale = torch.empty(1, dtype=torch.float32, device=x.device)
    data = torch.empty(x.shape, dtype=dtype, device=x.device)
    transposed = torch.empty(shape[::-1], dtype=dtype, device=x.device) if columns else None
    data.copy_(x)
    return _Quantised(data, transposed, scale, shape)


def _product(a: torch.Tensor, b: torch.Tensor, scales: tuple[torch.Tensor, torch.Tensor], dtype: Any) -> torch.Tensor:
    """[m, k] x [n, k] -> [m, n]."""
    return torch._scaled_mm(a, b.t(), scale_a=scales[0], scale_b=scales[1], out_dtype=dtype)


class _Linear(torch.autograd.Function):
    """Keeps the input as float8 columns, the weight as float8 rows and columns."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: torch.Tensor,
        inp: torch.Tensor,
        bias: torch.Tensor | None,
        device: TeDevice,
        dtype: torch.dtype,
        graph: bool,
    ) -> torch.Tensor:
        e4m3 = torch.float8_e4m3fn
        keeps = graph and weight.requires_grad
        x = _quantise(inp, e4m3, columns=keeps and device.transposes)
        w = _quantise(weight, e4m3, columns=graph and inp.requires_grad and device.transposes)
        if bias is not None and bias.dtype is not dtype:
            bias = bias.to(dtype)
        out = _product(x.rows(), w.rows(), (x.scale, w.scale), dtype).view(*inp.shape[:-1], weight.shape[0])
        if graph:
            kept = None if not keeps else x.transposed if device.transposes else x.data
            ctx.save_for_backward(kept, x.scale, w.data, w.transposed, w.scale, weight, bias)
            ctx.device, ctx.dtype, ctx.shapes = device, dtype, (x.shape, w.shape, inp.shape)
            ctx.use_bias = bias is not None
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        kept, x_scale, w_data, w_columns, w_scale, _, _ = ctx.saved_tensors
        x_shape, w_shape, shape = ctx.shapes
        needs_weight, needs_input = ctx.needs_input_grad[:2]
        flat = grads[0].reshape(-1, grads[0].shape[-1]).contiguous()
        columns = ctx.device.transposes and (needs_weight or ctx.use_bias)
        of_bias = torch.empty(flat.shape[-1], dtype=flat.dtype, device=flat.device) if ctx.use_bias else None
        grad = _quantise(flat, torch.float8_e5m2, columns=columns)
        if of_bias is not None:
            partial = torch.empty(-(-flat.shape[0] // _BIAS_TILE), flat.shape[1], dtype=torch.float32, device="meta")
            of_bias.copy_(partial[0])
            del partial
        of_input = of_weight = None
        if needs_input:
            w = _Quantised(w_data, w_columns, w_scale, w_shape)
            of_input = _product(grad.rows(), w.columns(), (grad.scale, w.scale), ctx.dtype).view(shape)
        if needs_weight:
            x = _Quantised(kept, kept if ctx.device.transposes else None, x_scale, x_shape)
            of_weight = _product(grad.columns(), x.columns(), (grad.scale, x.scale), ctx.dtype)
            del x
            kept.data = torch.empty(0, dtype=kept.dtype, device=kept.device)  # clear_tensor_data: owns_input
        return of_weight, of_input, of_bias, None, None, None


class TransformerEngineLinear(nn.Module):
    """te.Linear under fp8_autocast; weights stay in their own type and are made float8 at each forward pass.

    accelerate never says `is_first_microbatch`, so nothing is cached between passes (linear.py: cache_name None).
    """

    def __init__(self, linear: nn.Linear, name: str, device: TeDevice) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = nn.Parameter(torch.empty_like(linear.weight))
        self.bias = None if linear.bias is None else nn.Parameter(torch.empty_like(linear.bias))
        for direction, count in (("forward", _FORWARD_SCALES), ("backward", _BACKWARD_SCALES)):
            for what, shape in (("scale", (count,)), ("amax_history", (_HISTORY, count))):
                state = torch.empty(shape, dtype=torch.float32, device="meta")
                self.register_buffer(f"{direction}_{what}", state, persistent=False)
        self._name, self._device = name, device

    def forward(self, inp: torch.Tensor) -> torch.Tensor:
        rows = inp.numel() // inp.shape[-1]
        if rows % _ROWS:
            raise InputError(
                f"--set fp8.backend=te: {self._name} gets {rows} rows; Transformer Engine multiplies float8 rows in"
                f" multiples of {_ROWS}: change --seq-len, or use torchao"
            )
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else inp.dtype
        out: torch.Tensor = _Linear.apply(
            self.weight, inp.contiguous(), self.bias, self._device, dtype, torch.is_grad_enabled()
        )
        return out


class _LayerNorm(torch.autograd.Function):
    """Keeps the input in the type of the computation, mean and scale of each row."""

    @staticmethod
    def forward(
        ctx: Any, inp: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, device: TeDevice, dtype: torch.dtype
    ) -> torch.Tensor:
        x = inp.contiguous().to(dtype).view(-1, inp.shape[-1])
        w, b = weight.to(dtype), bias.to(dtype)
        means = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        scales = torch.empty_like(means)
        out = torch.empty_like(x)
        torch.ops.aten.mul.out(x, w, out=out)
        del b
        ctx.save_for_backward(x, means, scales, weight)
        ctx.device, ctx.dtype = device, dtype
        return out.view(inp.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, means, scales, weight = ctx.saved_tensors
        dy = grads[0].contiguous().to(ctx.dtype).view(x.shape)
        w = weight.to(ctx.dtype)
        of_input = torch.empty_like(x)
        of_weight, of_bias = torch.empty_like(w), torch.empty_like(w)
        # One block of threads for each multiprocessor: how many there are is the kernel's occupancy to say.
        sums = [torch.empty(ctx.device.sm_count, x.shape[1], dtype=torch.float32, device=x.device) for _ in range(2)]
        torch.ops.aten.mul.out(dy, x, out=of_input)
        del sums
        for saved in (x, means, scales):
            saved.data = torch.empty(0, dtype=saved.dtype, device=saved.device)
        return of_input.view(grads[0].shape), of_weight, of_bias, None, None


class TransformerEngineLayerNorm(nn.Module):
    """te.LayerNorm, whose output has autocast's type."""

    def __init__(self, norm: nn.LayerNorm, device: TeDevice) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty_like(norm.weight))
        self.bias = nn.Parameter(torch.empty_like(self.weight))
        self.eps, self._device = norm.eps, device

    def forward(self, inp: torch.Tensor) -> torch.Tensor:
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else self.weight.dtype
        out: torch.Tensor = _LayerNorm.apply(inp, self.weight, self.bias, self._device, dtype)
        return out


def convert_to_transformer_engine(model: nn.Module, device: TeDevice) -> None:
    """Swaps linear layers and layer norms in place, as accelerate utils/transformer_engine.py: convert_model does.

    Nothing where that was done before. InputError where no linear layer would be swapped, or an output layer that
    shares its weight with the embedding: accelerate gives the new layer a weight of its own, which no optimizer has.
    """
    if transformer_engine_linears(model):
        return
    embedding = _call(model, "get_input_embeddings")
    tied = None if embedding is None else getattr(embedding, "weight", None)
    kind = type(model).__name__
    _convert(model, "", device, tied, kind)
    if not transformer_engine_linears(model):
        raise InputError(f"--set fp8.backend=te: {kind} has no linear layer that accelerate would convert")
    workspace = torch.empty(device.workspace_bytes, dtype=torch.uint8, device="meta")
    model.register_buffer("transformer_engine_workspace", workspace, persistent=False)


def _convert(parent: nn.Module, prefix: str, device: TeDevice, tied: Any, kind: str) -> None:
    for name, module in parent.named_children():
        path = f"{prefix}{name}"
        if type(module) is nn.Linear or isinstance(module, nn.Linear):
            if any(size % 16 for size in module.weight.shape):
                return  # as convert_model does: what stands beside it stays as it is
            if module.weight is tied:
                raise InputError(
                    f"--set fp8.backend=te: accelerate would give {kind}'s {path} a weight of its own, tied to the"
                    " embedding no more and unknown to the optimizer: use torchao"
                )
            setattr(parent, name, TransformerEngineLinear(module, path, device))
        elif isinstance(module, nn.LayerNorm):
            setattr(parent, name, TransformerEngineLayerNorm(module, device))
        else:
            _convert(module, f"{path}.", device, tied, kind)


def transformer_engine_linears(model: nn.Module) -> tuple[str, ...]:
    """Names of the converted layers."""
    return tuple(name for name, module in model.named_modules() if isinstance(module, TransformerEngineLinear))


def _call(model: nn.Module, name: str) -> Any:
    method = getattr(model, name, None)
    try:
        return None if method is None else method()
    except (NotImplementedError, AttributeError):
        return None
