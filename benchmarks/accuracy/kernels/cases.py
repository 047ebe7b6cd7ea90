"""The kernels of Liger-Kernel's memory benchmarks, set up as its scripts set them up (benchmark/scripts, 2024)."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.accuracy.kernels.reduce import reduction_of, staging_bytes
from benchmarks.accuracy.row import Row, SetAside, needed, software_group, text
from gpu_plan.planner.trace.kernels.liger.kernels import LigerGatedProduct, rotary
from gpu_plan.planner.trace.kernels.liger.loss import chunk_rows, cross_entropy
from gpu_plan.planner.trace.recording.modules import ModuleTracker

_BF16 = torch.bfloat16
_MOST_SIZE = 2**24
_PROVIDERS, _MODES = ("liger", "huggingface"), ("full", "forward", "backward")


@dataclass(slots=True, kw_only=True)
class Component:
    """One benchmark: what stands before it, and one iteration of it."""

    module: nn.Module = field(default_factory=nn.Module)
    tensors: list[torch.Tensor]
    run: Callable[[ModuleTracker], None]
    workspaces: int = 0
    """cuBLAS's, one for each thread of the process that has multiplied matrices: all benchmarks of a script share it,
    and those that run forward alone come after those that run backward."""


def component_of(row: Row) -> Component:
    """The benchmark of a row. SetAside where it is not mirrored, or says too little."""
    if software_group(row) != "liger-kernel":
        raise SetAside("does not say which statistic it reports")
    make = _KERNELS.get(text(row, "kernel"))
    if make is None:
        raise SetAside("no kernel of a training step that is planned")
    if "A100" not in text(row, "gpu"):
        raise SetAside("measured on another GPU than an A100, whose kernels are mirrored")
    if text(row, "provider") not in _PROVIDERS or text(row, "mode") not in _MODES:
        raise SetAside("provider or mode not known")
    size = needed(row, "x_value", "size", _MOST_SIZE)
    config = _config(row)
    try:
        with torch.device("meta"):
            return make(row, config, size)
    except KeyError as missing:
        raise SetAside(f"its configuration leaves out {missing}") from None


def _config(row: Row) -> dict[str, Any]:
    """What the benchmark was told; sizes checked."""
    try:
        config = json.loads(text(row, "config"))
    except ValueError:
        raise SetAside("configuration makes no sense") from None
    if not isinstance(config, dict):
        raise SetAside("configuration makes no sense")
    if any(isinstance(size, int | float) and not 0 <= size <= _MOST_SIZE for size in config.values()):
        raise SetAside("configuration makes no sense")
    return config


def _full(forward: Callable[[], torch.Tensor], gradient: Callable[[torch.Tensor], torch.Tensor | None]) -> Any:
    def run(tracker: ModuleTracker) -> None:
        y = forward()
        given = gradient(y)
        tracker.start_backward()
        y.backward(given, retain_graph=given is not None)
        tracker.end_backward()

    return run


def _cross_entropy(row: Row, config: Row, size: int) -> Component:
    logits = torch.empty(config["B"] * config["T"], size, requires_grad=True)
    target = torch.empty(config["B"] * config["T"], dtype=torch.int64)
    loss = cross_entropy if row["provider"] == "liger" else F.cross_entropy
    return Component(tensors=[logits, target], run=_full(lambda: loss(logits, target), lambda y: None))


class _Gated(nn.Module):
    """LlamaMLP, or Liger's in its place."""

    def __init__(self, config: Row, fused: bool) -> None:
        super().__init__()
        wide, narrow = config["intermediate_size"], config["hidden_size"]
        self.gate_proj = nn.Linear(narrow, wide, bias=False, dtype=_BF16)
        self.up_proj = nn.Linear(narrow, wide, bias=False, dtype=_BF16)
        self.down_proj = nn.Linear(wide, narrow, bias=False, dtype=_BF16)
        self.fused, self.silu = fused, config["hidden_act"] == "silu"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            both = LigerGatedProduct.apply(self.gate_proj(x), self.up_proj(x))
        else:
            gate = self.gate_proj(x)
            both = (F.silu(gate) if self.silu else F.gelu(gate, approximate="tanh")) * self.up_proj(x)
        out: torch.Tensor = self.down_proj(both)
        return out


def _gated(row: Row, config: Row, size: int) -> Component:
    layer = _Gated(config, row["provider"] == "liger")
    batch = config.get("bsz") or config["B"]
    x = torch.empty(batch, size, config["hidden_size"], dtype=_BF16, requires_grad=True)
    tensors = [x, *layer.parameters()]
    if row["mode"] == "forward":
        return Component(module=layer, tensors=tensors, run=lambda _: _drop(layer(x)), workspaces=2)
    return Component(module=layer, tensors=tensors, run=_full(lambda: layer(x), torch.randn_like), workspaces=2)


def _drop(_: torch.Tensor) -> None:
    """What an iteration returns is let go."""


class _LlamaNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + 1e-6)
        return self.weight * hidden_states.to(input_dtype)


def _norm(row: Row, config: Row, size: int) -> Component:
    layer, other = _LlamaNorm(size), nn.Parameter(torch.ones(size))
    x = torch.empty(config["M"], size, dtype=_BF16, requires_grad=True)
    dy = torch.empty(config["M"], size, dtype=_BF16)

    def forward() -> torch.Tensor:
        out: torch.Tensor = layer(x) if row["provider"] != "liger" else _EarlierNorm.apply(x, other)
        return out

    return Component(module=layer, tensors=[x, dy, layer.weight, other], run=_full(forward, lambda y: dy))


class _EarlierNorm(torch.autograd.Function):
    """liger-kernel 0.2.1 ops/rms_norm.py: the weight's gradient is a sum over one fp32 row for each token."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        scale = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight, _ = ctx.saved_tensors
        grad = grads[0]
        rows = torch.empty_like(x, dtype=weight.dtype)
        grad.mul_(x)
        staging = staging_bytes(
            reduction_of(rows.shape, rows.stride(), (0,)), element=4, vector=4, capability=(8, 0), sm_count=108
        )
        held = [torch.empty(size, dtype=torch.uint8, device=x.device) for size in staging]
        of_weight = torch.sum(rows, dim=0).to(weight.dtype)
        del held
        # A view of what the caller gave: autograd takes it over as the gradient without a copy.
        return grad.view(grad.shape), of_weight


def _turned(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers models/llama/modeling_llama.py: apply_rotary_pos_emb."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    q_embed = (q * cos) + (_rotated(q) * sin)
    k_embed = (k * cos) + (_rotated(k) * sin)
    return q_embed, k_embed


def _rotated(x: torch.Tensor) -> torch.Tensor:
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def _rope(row: Row, config: Row, size: int) -> Component:
    width, length = config.get("hidden_size", size), config.get("seq_len", size)
    head = width // config["num_q_heads"]
    leaves = [
        torch.empty(1, length, config[heads], head, dtype=_BF16, requires_grad=True)
        for heads in ("num_q_heads", "num_kv_heads")
    ]
    q, k = (leaf.transpose(1, 2) for leaf in leaves)
    dq, dk = torch.empty_like(q), torch.empty_like(k)
    cos, sin = (torch.empty(1, length, head, dtype=_BF16) for _ in range(2))
    positions = torch.empty(1, length, dtype=torch.int64)
    frequencies = torch.empty(head // 2)
    turn = rotary if row["provider"] == "liger" else _turned

    def run(tracker: ModuleTracker) -> None:
        outs = turn(q, k, cos, sin)
        tracker.start_backward()
        torch.autograd.grad(outs, (q, k), (dq, dk), allow_unused=True, retain_graph=True)
        tracker.end_backward()

    # LlamaRotaryEmbedding makes cos and sin with a product, on the forward thread alone.
    return Component(tensors=[*leaves, dq, dk, cos, sin, positions, frequencies], run=run, workspaces=1)


class _EarlierLinearLoss(torch.autograd.Function):
    """liger-kernel 0.4.2 ops/fused_linear_cross_entropy.py: each chunk's logits upcast, cast back and scaled anew."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        size = chunk_rows(rows.shape[0], rows.shape[1], weight.shape[0])
        grad_weight, grad_rows = torch.zeros_like(weight), torch.zeros_like(rows)
        losses = torch.zeros(rows.shape[0], dtype=torch.float32, device=rows.device)
        for start in range(0, rows.shape[0], size):
            chunk = rows[start : start + size]
            logits = chunk @ weight.t()
            logits = logits.float()
            logits = logits.to(rows.dtype)
            grad_logits = logits * 1.0
            grad_rows[start : start + size] = grad_logits @ weight
            torch.ops.aten.mm.out(logits.t(), chunk, out=grad_weight)
        ctx.save_for_backward(grad_rows.detach(), grad_weight.detach())
        return torch.sum(losses)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        grad_rows, grad_weight = ctx.saved_tensors
        return grad_rows, grad_weight, None


def _linear_loss(row: Row, config: Row, size: int) -> Component:
    heads = [nn.Linear(config["H"], config["V"], bias=False, dtype=_BF16) for _ in range(2)]
    x = torch.empty(size, config["H"], dtype=_BF16, requires_grad=True)
    target = torch.empty(size, dtype=torch.int64)
    fused = row["provider"] == "liger"

    def forward() -> torch.Tensor:
        if not fused:
            return F.cross_entropy(heads[0](x), target)
        loss: torch.Tensor = _EarlierLinearLoss.apply(x, heads[1].weight, target)
        return loss

    weights = [head.weight for head in heads]
    run = _full(forward, lambda y: None)
    return Component(module=heads[0], tensors=[x, target, *weights], run=run, workspaces=2)


_KERNELS: dict[str, Callable[[Row, Row, int], Component]] = {
    "cross_entropy": _cross_entropy,
    "geglu": _gated,
    "swiglu": _gated,
    "rms_norm": _norm,
    "rope": _rope,
    "fused_linear_cross_entropy": _linear_loss,
}
