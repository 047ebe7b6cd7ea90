"""Mamba-2's fused block: convolution, chunked scan, gated norm and output projection.

Letters in shapes: B batch, L tokens, H heads, P head size, G groups, N state size, c chunks of s tokens.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd import Function

from gpu_plan.planner.trace.kernels.scans.mamba import autocast_copy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    heads: int
    head_dim: int
    groups: int
    state: int
    chunk: int

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.width + 2 * self.groups * self.state


def _fp32(like: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _chunk_scan(zxbcdt: torch.Tensor, sizes: _Sizes) -> torch.Tensor:
    """Forward of the scan; returns its output [B, L, H P].

    state-spaces/mamba mamba_ssm/ops/triton/ssd_combined.py: _mamba_chunk_scan_combined_fwd.
    """
    batch, tokens, _ = zxbcdt.shape
    chunks = -(-tokens // sizes.chunk)
    cumulative = _fp32(zxbcdt, batch, sizes.heads, chunks, sizes.chunk)
    steps = _fp32(zxbcdt, batch, sizes.heads, chunks, sizes.chunk)
    raw = _fp32(zxbcdt, batch, chunks, sizes.heads, sizes.head_dim, sizes.state)
    states = torch.empty_like(raw, dtype=zxbcdt.dtype)
    final = _fp32(zxbcdt, batch, sizes.heads, sizes.head_dim, sizes.state)
    del raw
    scores = _fp32(zxbcdt, batch, chunks, sizes.groups, sizes.chunk, sizes.chunk)
    out = torch.empty(batch, tokens, sizes.width, dtype=zxbcdt.dtype, device=zxbcdt.device)
    del cumulative, steps, states, final, scores
    return out


def _chunk_scan_backward(zxbcdt: torch.Tensor, sizes: _Sizes) -> None:
    """Temporaries of the scan's backward, in the order of _mamba_chunk_scan_combined_bwd (same file)."""
    batch, tokens, _ = zxbcdt.shape
    chunks = -(-tokens // sizes.chunk)
    per_chunk = (batch, sizes.heads, chunks, sizes.chunk)
    state = (batch, chunks, sizes.heads, sizes.head_dim, sizes.state)
    steps_in = torch.empty(batch, tokens, sizes.heads, dtype=zxbcdt.dtype, device=zxbcdt.device)
    cumulative, steps = _fp32(zxbcdt, *per_chunk), _fp32(zxbcdt, *per_chunk)
    scores = _fp32(zxbcdt, batch, chunks, sizes.groups, sizes.chunk, sizes.chunk)
    raw = _fp32(zxbcdt, *state)
    states = _fp32(zxbcdt, *state)
    del raw
    dstates = _fp32(zxbcdt, *state)
    dstates_low = torch.empty_like(dstates, dtype=zxbcdt.dtype)
    states_low = torch.empty_like(states, dtype=zxbcdt.dtype)
    del dstates, states
    dsteps = _fp32(zxbcdt, *per_chunk)
    db = _fp32(zxbcdt, batch, tokens, sizes.groups, sizes.state)
    dda_next = _fp32(zxbcdt, *per_chunk)
    dc = _fp32(zxbcdt, batch, tokens, sizes.groups, sizes.state)
    dda_previous = _fp32(zxbcdt, *per_chunk)
    dscores = torch.empty_like(scores)
    dda = _fp32(zxbcdt, *per_chunk)
    del steps_in, cumulative, steps, scores, dstates_low, states_low
    del dsteps, db, dda_next, dc, dda_previous, dscores, dda


class SplitConv1dScanCombined(Function):
    """state-spaces/mamba mamba_ssm/ops/triton/ssd_combined.py: MambaSplitConv1dScanCombinedFn (2.2)."""

    @staticmethod
    def forward(
        ctx: Any,
        zxbcdt: torch.Tensor,
        conv_weight: torch.Tensor,
        conv_bias: torch.Tensor | None,
        dt_bias: torch.Tensor,
        a: torch.Tensor,
        d: torch.Tensor,
        norm_weight: torch.Tensor | None,
        out_proj: torch.Tensor | None,
        out_bias: torch.Tensor | None,
        sizes: _Sizes,
    ) -> torch.Tensor:
        batch, tokens, _ = zxbcdt.shape
        convolved = torch.empty(batch, tokens, sizes.convolved, dtype=zxbcdt.dtype, device=zxbcdt.device)
        scanned = _chunk_scan(zxbcdt, sizes)
        # Without a norm the scan's own kernel gates its output, and what it gated is kept (_chunk_scan_fwd: out_x).
        normed, rstd = torch.empty_like(scanned), None
        if norm_weight is not None:
            rstd = _fp32(zxbcdt, sizes.groups * batch * tokens)
        result, low = normed, None
        if out_proj is not None:
            low, low_bias, normed_low = (autocast_copy(t) for t in (out_proj, out_bias, normed))
            assert low is not None
            assert normed_low is not None
            result = F.linear(normed_low, low, low_bias)
        del convolved
        ctx.sizes, ctx.out_dtype = sizes, None if out_proj is None else out_proj.dtype
        ctx.save_for_backward(zxbcdt, conv_weight, conv_bias, scanned, a, d, dt_bias, norm_weight, rstd, low, out_bias)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        zxbcdt, conv_weight, conv_bias, scanned, a, d, dt_bias, norm_weight, _, low, out_bias = ctx.saved_tensors
        recomputed = torch.empty_like(scanned) if low is not None else None
        batch, tokens, _ = zxbcdt.shape
        convolved = torch.empty(batch, tokens, ctx.sizes.convolved, dtype=zxbcdt.dtype, device=zxbcdt.device)
        dzxbcdt = torch.empty_like(zxbcdt)
        dconvolved = torch.empty_like(convolved)
        dout = grad if low is None else F.linear(grad, low.t())
        dnorm = None if norm_weight is None else torch.zeros_like(norm_weight)
        # Of what was gated: by the norm's backward, or by _chunk_scan_bwd_dz.
        dout = torch.empty_like(scanned)
        _chunk_scan_backward(zxbcdt, ctx.sizes)
        del dout, convolved
        dout_proj = dout_bias = None
        if low is not None and recomputed is not None:
            dout_proj = (grad.flatten(0, 1).t() @ recomputed.flatten(0, 1)).to(ctx.out_dtype)
            dout_bias = None if out_bias is None else grad.sum(dim=(0, 1))
        dweight = torch.zeros_like(conv_weight, dtype=torch.float32).to(conv_weight.dtype)
        dbias = None if conv_bias is None else torch.zeros_like(conv_bias)
        del dconvolved, recomputed
        small = [torch.zeros_like(t) for t in (dt_bias, a, d)]
        return dzxbcdt, dweight, dbias, *small, dnorm, dout_proj, dout_bias, None


def split_conv1d_scan_combined(
    zxbcdt: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: torch.Tensor | None,
    dt_bias: torch.Tensor,
    A: torch.Tensor,
    D: torch.Tensor,
    chunk_size: int,
    rmsnorm_weight: torch.Tensor | None = None,
    outproj_weight: torch.Tensor | None = None,
    outproj_bias: torch.Tensor | None = None,
    headdim: int | None = None,
    ngroups: int = 1,
    **_: Any,
) -> torch.Tensor:
    """zxbcdt [B, L, 2 H P + 2 G N + H] -> [B, L, hidden], the whole mixer after its input projection."""
    heads = D.shape[0]
    head_dim = D.shape[1] if D.dim() == 2 else headdim
    assert head_dim is not None
    state = (conv1d_weight.shape[0] - heads * head_dim) // ngroups // 2
    sizes = _Sizes(heads=heads, head_dim=head_dim, groups=ngroups, state=state, chunk=chunk_size)
    return SplitConv1dScanCombined.apply(
        zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, rmsnorm_weight, outproj_weight, outproj_bias, sizes
    )
