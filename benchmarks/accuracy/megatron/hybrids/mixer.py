"""MambaMixer on one rank (megatron/core/ssm/mamba_mixer.py), with the norm of state-spaces/mamba
(mamba_ssm/ops/triton/layernorm_gated.py).

Custom functions have untyped contexts, hence Any.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.kernels.scans.mamba2 import split_conv1d_scan_combined
from gpu_plan.planner.trace.megatron.products.linear import Linear, NormLinear, shared_of
from gpu_plan.planner.trace.megatron.products.norms import parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Sizes of a mixer (`--mamba-state-dim`, `--mamba-head-dim`, `--mamba-num-groups`, `--mamba-num-heads`)."""

    state: int = 128
    head_dim: int = 64
    groups: int = 8
    heads: int | None = None
    """None: as many as twice the hidden size has (MambaMixer: expand)."""
    convolution: int = 4
    chunk: int = 128

    def heads_of(self, hidden: int) -> int:
        """Heads of all ranks."""
        return self.heads or 2 * hidden // self.head_dim


class _GroupNorm(torch.autograd.Function):
    """LayerNormFn: input and the scale of each group of a row are kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, groups: int) -> torch.Tensor:
        rows = x.numel() // x.shape[-1]
        out = torch.empty_like(x)
        ctx.save_for_backward(x, weight, torch.empty(groups * rows, dtype=torch.float32, device=x.device))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight), None


class Mixer(nn.Module):
    """In-projection with its norm, convolution and scan in one kernel, a norm of groups, out-projection."""

    def __init__(self, model: Architecture, layout: Layout, sizes: Mamba2) -> None:
        super().__init__()
        shared, heads = shared_of(layout), sizes.heads_of(model.hidden) // layout.tensor
        self._inner, self._groups, self._sizes = heads * sizes.head_dim, sizes.groups // layout.tensor, sizes
        convolved = self._inner + 2 * self._groups * sizes.state
        self.in_proj = NormLinear(
            model.hidden, self._inner + convolved + heads, shared, norm_bias=model.norm == "layer", bias=False
        )
        self.conv1d_weight = parameter(convolved, 1, sizes.convolution)
        self.conv1d_bias = parameter(convolved)
        # transformer/module.py: Float16Module brings what is made in fp32 to 16 bits, too.
        self.dt_bias, self.A_log, self.D = parameter(heads), parameter(heads), parameter(heads)
        self.norm_weight = parameter(self._inner)
        self.out_proj = Linear(self._inner, model.hidden, shared, "row", bias=False, apart=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.in_proj(x)  # forward names it until it returns
        out: torch.Tensor = self.out_proj(self._scanned(mixed))
        return out

    def _scanned(self, mixed: torch.Tensor) -> torch.Tensor:
        """_ssm_training."""
        mixed = mixed.transpose(0, 1).contiguous()
        found = split_conv1d_scan_combined(
            mixed,
            self.conv1d_weight.squeeze(1),
            self.conv1d_bias,
            self.dt_bias.float(),
            -torch.exp(self.A_log.float()),
            self.D,
            self._sizes.chunk,
            headdim=self._sizes.head_dim,
            ngroups=self._groups,
        )
        found = found.transpose(0, 1).contiguous()
        normed: torch.Tensor = _GroupNorm.apply(found, self.norm_weight, self._groups)
        return normed
