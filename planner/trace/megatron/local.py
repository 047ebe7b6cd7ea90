"""Layers of Megatron-core's own (`--transformer-impl local`), where Transformer Engine's are not.

megatron/core/tensor_parallel/layers.py: LinearWithGradAccumulationAndAsyncCommunication, ColumnParallelLinear,
RowParallelLinear; transformer/dot_product_attention.py: DotProductAttention; fusions/fused_softmax.py:
FusedScaleMaskSoftmax; transformer/torch_norm.py. Custom functions have untyped contexts, hence Any.
"""

import math
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.functions import Gelu, ScaledSoftmax, SwiGlu
from gpu_plan.planner.trace.megatron.group import all_sum, gather, gather_into, scatter_sum
from gpu_plan.planner.trace.megatron.products.linear import Shared, dummy_of, input_gradient, product, weight_gradient
from gpu_plan.planner.trace.megatron.products.norms import Norm
from gpu_plan.planner.trace.megatron.recompute import Recomputed


class Gathers(nn.Module):
    """What uses Megatron-core's buffer that stays (utils.py: GlobalMemoryBuffer), as long as its largest use."""

    gathered: torch.Tensor | None = None


def part_of(buffer: torch.Tensor, *shape: int) -> torch.Tensor:
    """The buffer's beginning, in that shape."""
    return buffer.view(-1)[: math.prod(shape)].view(shape)


class GatheredLinear(torch.autograd.Function):
    """Keeps its input; tokens of other ranks are gathered in the buffer (get_global_memory_buffer). A bias is added to
    the product in a tensor of its own, and its gradient is the last one made."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        dummy: Any,
        buffer: Any,
        shared: Shared,
        column: bool,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        total = x if buffer is None else _whole(buffer, x, shared.ranks)
        ctx.save_for_backward(x, weight)
        ctx.dummy, ctx.buffer, ctx.shared, ctx.column = dummy, buffer, shared, column
        ctx.biased = bias is not None
        out = product(total, weight, None)
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        shared: Shared = ctx.shared
        grad = grads[0]
        total = x if ctx.buffer is None else _whole(ctx.buffer, x, shared.ranks)
        whole = input_gradient(grad, weight)
        of_input = whole
        if ctx.column and shared.ranks > 1:
            of_input = scatter_sum(whole, shared.ranks) if shared.sequence else all_sum(whole, shared.ranks)
        grad = grad.contiguous()
        of_weight = weight_gradient(grad, total, ctx.dummy)
        of_bias = grad.reshape(-1, grad.shape[-1]).sum(dim=0) if ctx.biased else None
        return of_input, of_weight, None, None, None, None, of_bias


class _Summed(torch.autograd.Function):
    """tensor_parallel/mappings.py: reduce_from_, or reduce_scatter_to_sequence_parallel_region."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shared: Shared) -> torch.Tensor:
        ctx.shared = shared
        return scatter_sum(x, shared.ranks) if shared.sequence else all_sum(x, shared.ranks)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return (gather(grads[0], ctx.shared.ranks) if ctx.shared.sequence else grads[0]), None


def _whole(buffer: torch.Tensor, x: torch.Tensor, ranks: int) -> torch.Tensor:
    return gather_into(part_of(buffer, x.shape[0] * ranks, *x.shape[1:]), x, ranks)


class LocalLinear(Gathers):
    """ColumnParallelLinear or RowParallelLinear; sizes are those of this rank."""

    fuses = True
    """Whether its weight's gradient may go straight into the buffer."""

    def __init__(
        self, inputs: int, outputs: int, shared: Shared, *, column: bool, bias: bool = False, apart: bool = False
    ) -> None:
        """`apart`: whether the bias is handed on instead of added (`skip_bias_add`)."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=torch.bfloat16, device="meta"))
        self.bias = nn.Parameter(torch.empty(outputs, dtype=torch.bfloat16, device="meta")) if bias else None
        self._shared, self._column, self._apart = shared, column, apart

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        buffer = self.gathered if self._column and self._shared.gathers else None
        added = None if self._apart else self.bias
        out: torch.Tensor = GatheredLinear.apply(
            x,
            self.weight,
            dummy_of(self, self.weight),
            buffer,
            self._shared,
            self._column,
            added if self._column else None,
        )
        if not self._column and self._shared.ranks > 1:
            out = _Summed.apply(out, self._shared)
        return out if added is None or self._column else out + added


class TorchNorm(nn.Module):
    """WrappedTorchNorm: torch's layer norm."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=torch.bfloat16, device="meta"))
        self.bias = nn.Parameter(torch.empty(size, dtype=torch.bfloat16, device="meta"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


class LocalCore(Gathers):
    """DotProductAttention: [sequence, batch, heads, head size] each."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        self._scale, self._fused = model.head_dim**-0.5, layout.fused
        self.dropout = nn.Dropout(layout.attention_dropout)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        rows, batch, heads, _ = q.shape
        keys = k.shape[0]
        if k.shape[2] != heads:
            k, v = (x.repeat_interleave(heads // x.shape[2], dim=2) for x in (k, v))
        q = q.reshape(rows, batch * heads, -1)
        k = k.view(keys, batch * heads, -1)
        assert self.gathered is not None
        beside = part_of(self.gathered, batch * heads, rows, keys)
        scores = torch.baddbmm(
            beside, q.transpose(0, 1), k.transpose(0, 1).transpose(1, 2), beta=0.0, alpha=self._scale
        )
        probabilities = self._softmax(scores.view(batch, heads, rows, keys))
        probabilities = self.dropout(probabilities)
        v = v.view(v.shape[0], batch * heads, -1)
        found = torch.bmm(probabilities.view(batch * heads, rows, -1), v.transpose(0, 1))
        found = found.view(batch, heads, rows, -1).permute(2, 0, 1, 3).contiguous()
        return found.view(rows, batch, -1)

    def _softmax(self, scores: torch.Tensor) -> torch.Tensor:
        """`forward_fused_softmax`, or `forward_torch_softmax`, whose mask is made once."""
        if self._fused:
            found: torch.Tensor = ScaledSoftmax.apply(scores)
            return found
        mask = torch.empty(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        return nn.functional.softmax(scores.masked_fill_(mask, -10000.0), dim=-1)


class LocalAttention(nn.Module):
    """attention.py: SelfAttention of the local layers, without rotary positions."""

    def __init__(self, model: Architecture, layout: Layout, shared: Shared) -> None:
        super().__init__()
        self._groups, self._size = max(1, model.groups // layout.tensor), model.head_dim
        self._heads = model.heads // layout.tensor
        outputs, biases = (self._heads + 2 * self._groups) * self._size, model.biases
        self.linear_qkv = LocalLinear(model.hidden, outputs, shared, column=True, bias=biases)
        self.core_attention = LocalCore(model, layout)
        inputs = self._heads * self._size
        self.linear_proj = LocalLinear(inputs, model.hidden, shared, column=False, bias=biases, apart=True)
        self._again = layout.runs_again("core_attn")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.linear_qkv(x)
        mixed = mixed.view(*mixed.shape[:2], self._groups, -1)
        each = self._heads // self._groups * self._size
        q, k, v = torch.split(mixed, [each, self._size, self._size], dim=3)
        del mixed
        q = q.reshape(*q.shape[:2], -1, self._size)
        core = self.core_attention
        found = Recomputed.apply(core, q, k, v) if self._again else core(q, k, v)
        out: torch.Tensor = self.linear_proj(found)
        return out


class LocalMlp(nn.Module):
    """mlp.py: MLP of the local layers, or of one expert, whose rows have weights."""

    def __init__(self, model: Architecture, shared: Shared, width: int, *, biases: bool = False) -> None:
        super().__init__()
        self._gated = model.gated
        outputs = width * (2 if model.gated else 1)
        self.linear_fc1 = LocalLinear(model.hidden, outputs, shared, column=True, bias=biases, apart=True)
        self.linear_fc2 = LocalLinear(width, model.hidden, shared, column=False, bias=biases, apart=True)

    def forward(self, x: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
        wide = self.linear_fc1(x)
        narrow: torch.Tensor
        if self.linear_fc1.bias is not None:
            # mlp.py: bias_activation_fusion, in one kernel (fused_bias_gelu.py, fused_bias_swiglu.py).
            narrow = (SwiGlu if self._gated else Gelu).apply(wide, self.linear_fc1.bias)
        elif self._gated:
            gate, up = torch.chunk(wide, 2, dim=-1)
            narrow = nn.functional.silu(gate) * up
        else:
            narrow = nn.functional.gelu(wide)
        del wide
        if weights is not None:
            narrow = (narrow * weights.unsqueeze(-1)).to(x.dtype)
        out: torch.Tensor = self.linear_fc2(narrow)
        return out


def local_norm(model: Architecture) -> nn.Module:
    """Torch's layer norm; of an RMS norm Transformer Engine's stands for Apex's."""
    return TorchNorm(model.hidden) if model.norm == "layer" else Norm(model.hidden, bias=False)
