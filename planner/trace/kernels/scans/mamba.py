"""Mamba's kernels: causal convolution, selective scan, and the fused block.

Letters in shapes: B batch, L tokens, D inner width, N state size, R rank of the time step, w kernel width.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd import Function

SCAN_CHUNK = 2048
"""Tokens between stored states (state-spaces/mamba csrc/selective_scan/selective_scan.cpp)."""


def last_dense(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor`, copied if its last dimension is not dense, as the kernels' wrappers do."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def autocast_copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A copy in the autocast dtype where autocast is on, as `MambaInnerFn` makes of its weights."""
    if tensor is None or not torch.is_autocast_enabled():
        return tensor
    return tensor.to(torch.get_autocast_dtype("cuda"))


def scan_states(u: torch.Tensor, state_size: int) -> torch.Tensor:
    """Stored states, fp32 [B, D, ceil(L / 2048), 2N]."""
    batch, width, tokens = u.shape
    chunks = -(-tokens // SCAN_CHUNK)
    return torch.empty(batch, width, chunks, 2 * state_size, dtype=torch.float32, device=u.device)


class CausalConv1d(Function):
    """Dao-AILab/causal-conv1d causal_conv1d_interface.py: CausalConv1dFn."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if x.stride(2) != 1 and x.stride(1) != 1:
            x = x.contiguous()
        ctx.save_for_backward(x, weight, bias)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        if grad.stride(2) != 1 and grad.stride(1) != 1:
            grad = grad.contiguous()
        dx = torch.empty_like(x)
        dweight = torch.zeros_like(weight, dtype=torch.float32)
        dbias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32).to(bias.dtype)
        return dx, dweight.to(weight.dtype), dbias


def causal_conv1d(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    **_: Any,
) -> torch.Tensor:
    """[B, D, L] -> [B, D, L] in the same layout; the activation is recomputed in backward."""
    return CausalConv1d.apply(hidden_states, weight, bias)


def _scanned(*inputs: torch.Tensor | None) -> tuple[tuple[torch.Tensor | None, ...], torch.Tensor]:
    """What a scan keeps for its backward (the stored states last but one), and its result."""
    u, delta, a, b, c, d, z, delta_bias = (None if t is None else last_dense(t) for t in inputs)
    assert u is not None
    assert delta is not None
    assert a is not None
    out, states = torch.empty_like(delta), scan_states(u, a.shape[-1])
    return (u, delta, a, b, c, d, z, delta_bias, states, out), out if z is None else torch.empty_like(z)


class SelectiveScan(Function):
    """state-spaces/mamba mamba_ssm/ops/selective_scan_interface.py: SelectiveScanFn, with a gate."""

    @staticmethod
    def forward(ctx: Any, *inputs: torch.Tensor | None) -> torch.Tensor:
        kept, result = _scanned(*inputs)
        ctx.save_for_backward(*kept)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        u, delta, a, b, c, d, z, delta_bias, _, _ = ctx.saved_tensors
        grad = last_dense(grad)
        du, ddelta = torch.empty_like(u), torch.empty_like(delta)
        da = torch.zeros_like(a)
        db = torch.zeros_like(b, dtype=torch.float32).to(b.dtype)
        dc = torch.zeros_like(c, dtype=torch.float32).to(c.dtype)
        rest = [None if t is None else torch.zeros_like(t) for t in (d, z, delta_bias)]
        return du, ddelta, da, db, dc, *rest


def selective_scan(
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    return_last_state: bool = False,
    **_: Any,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """u and dt [B, D, L], A [D, N], B and C [B, N, L], z [B, D, L] -> [B, D, L], and where asked the last state.

    mamba_ssm selective_scan_interface.py: SelectiveScanFn gives as last state [B, D, N] a view of the stored ones.
    """
    if not return_last_state:
        return SelectiveScan.apply(hidden_states, dt, A, B, C, D, z, delta_bias)
    if torch.is_grad_enabled():
        out = SelectiveScan.apply(hidden_states, dt, A, B, C, D, z, delta_bias)
        return out, scan_states(hidden_states, A.shape[-1])[:, :, -1, 1::2]
    kept, out = _scanned(hidden_states, dt, A, B, C, D, z, delta_bias)
    states = kept[-2]
    assert states is not None
    return out, states[:, :, -1, 1::2]


def selective_state_update(state: torch.Tensor, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """One token: x [B, D] -> [B, D], the state in place.

    mamba_ssm ops/triton/selective_state_update.py: selective_state_update makes `out = torch.empty_like(x)` alone.
    """
    return torch.empty_like(hidden_states)


class MambaInner(Function):
    """state-spaces/mamba mamba_ssm/ops/selective_scan_interface.py: MambaInnerFn with checkpoint_lvl=1.

    The convolution's output and the time steps are recomputed in backward.
    """

    @staticmethod
    def forward(
        ctx: Any,
        xz: torch.Tensor,
        conv_weight: torch.Tensor,
        conv_bias: torch.Tensor | None,
        x_proj: torch.Tensor,
        delta_proj: torch.Tensor,
        out_proj: torch.Tensor,
        out_bias: torch.Tensor | None,
        a: torch.Tensor,
        d: torch.Tensor | None,
        delta_bias: torch.Tensor | None,
    ) -> torch.Tensor:
        ctx.dtypes = x_proj.dtype, delta_proj.dtype, out_proj.dtype
        copies = [autocast_copy(weight) for weight in (x_proj, delta_proj, out_proj, out_bias)]
        x_low, delta_low, out_low, bias_low = copies
        assert x_low is not None
        assert delta_low is not None
        assert out_low is not None
        xz = last_dense(xz)
        x, z = xz.chunk(2, dim=1)
        convolved = torch.empty_like(x)
        x_dbl = F.linear(_rows(convolved), x_low)
        delta = _time_steps(delta_low, x_dbl, x)
        state_size = a.shape[-1]
        b, c = (_per_state(x_dbl, state_size, first, x) for first in (delta_low.shape[1], -state_size))
        out, states, gated = torch.empty_like(delta), scan_states(x, state_size), torch.empty_like(z)
        del convolved, delta
        ctx.save_for_backward(
            xz, conv_weight, conv_bias, x_dbl, x_low, delta_low, out_low, a, b, c, d, delta_bias, states, out
        )
        ctx.has_out_bias = out_bias is not None
        return F.linear(gated.transpose(1, 2), out_low, bias_low)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (xz, conv_weight, conv_bias, x_dbl, x_low, delta_low, out_low, a, b, c, d, delta_bias, _, out) = (
            ctx.saved_tensors
        )
        grad = last_dense(grad)
        x = xz.chunk(2, dim=1)[0]
        tokens, rank = x.shape[-1], delta_low.shape[1]
        convolved = torch.empty_like(x)
        delta = _time_steps(delta_low, x_dbl, x)
        dxz = torch.empty_like(xz)
        columns = grad.permute(2, 0, 1).reshape(grad.shape[-1], -1)
        dout = (out_low.t() @ columns).view(-1, x.shape[0], tokens).transpose(0, 1)
        dconv, ddelta, gated = torch.empty_like(convolved), torch.empty_like(delta), torch.empty_like(out)
        small = [None if t is None else torch.zeros_like(t) for t in (a, d, delta_bias)]
        wide = [torch.zeros_like(t, dtype=torch.float32).to(t.dtype) for t in (b, c)]
        del dout
        dout_proj = columns @ _rows(gated)
        dbias = grad.sum(dim=(0, 1)) if ctx.has_out_bias else None
        dx_dbl = torch.empty_like(x_dbl)
        del wide
        steps = ddelta.transpose(0, 1).reshape(ddelta.shape[1], -1)
        ddelta_proj = steps @ x_dbl[:, :rank]
        dx_dbl[:, :rank] = steps.t() @ delta_low
        dx_proj = dx_dbl.t() @ _rows(convolved)
        dconv = torch.addmm(dconv.transpose(0, 1).reshape(dconv.shape[1], -1), x_low.t(), dx_dbl.t())
        dweight = torch.zeros_like(conv_weight, dtype=torch.float32).to(conv_weight.dtype)
        dconv_bias = None if conv_bias is None else torch.zeros_like(conv_bias)
        weights = [g.to(t) for g, t in zip((dx_proj, ddelta_proj, dout_proj), ctx.dtypes, strict=True)]
        return dxz, dweight, dconv_bias, *weights, dbias, *small


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """[B, D, L] -> [B L, D], a copy."""
    return tensor.transpose(1, 2).reshape(-1, tensor.shape[1])


def _time_steps(delta_proj: torch.Tensor, x_dbl: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """[D, R] and [B L, R + 2N] -> [B, D, L], laid out with D slowest."""
    steps = delta_proj @ x_dbl[:, : delta_proj.shape[1]].t()
    return steps.view(steps.shape[0], x.shape[0], x.shape[2]).transpose(0, 1)


def _per_state(x_dbl: torch.Tensor, size: int, first: int, x: torch.Tensor) -> torch.Tensor:
    """Columns of [B L, R + 2N] -> [B, 1, N, L], contiguous."""
    columns = x_dbl[:, first:] if first < 0 else x_dbl[:, first : first + size]
    return columns.view(x.shape[0], x.shape[2], size).transpose(1, 2).unsqueeze(1).contiguous()


def mamba_inner(
    xz: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: torch.Tensor | None,
    x_proj_weight: torch.Tensor,
    delta_proj_weight: torch.Tensor,
    out_proj_weight: torch.Tensor,
    out_proj_bias: torch.Tensor | None,
    A: torch.Tensor,
    B: torch.Tensor | None = None,
    C: torch.Tensor | None = None,
    D: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = True,
    **_: Any,
) -> torch.Tensor:
    """xz [B, 2D, L] -> [B, L, hidden], the whole mixer after its input projection."""
    return MambaInner.apply(
        xz,
        conv1d_weight,
        conv1d_bias,
        x_proj_weight,
        delta_proj_weight,
        out_proj_weight,
        out_proj_bias,
        A,
        D,
        delta_bias,
    )
