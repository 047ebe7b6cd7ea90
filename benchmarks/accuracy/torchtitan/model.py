"""torchtitan's Llama as its published runs had it, as far as memory goes: modules, checkpointing, loss.

Mirrored from pytorch/torchtitan torchtitan/models/llama/model.py, torchtitan/models/norms.py and
torchtitan/parallelisms/parallelize_llama.py at 6a6f755d (December 2024).
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

if TYPE_CHECKING:
    from collections.abc import Callable

Recompute = Literal["none", "full", "op", "every-2nd"]
Norm = Literal["written-out", "fused"]
Loss = Literal["whole", "chunked"]
Compiled = Literal["nothing", "blocks", "blocks and loss"]
Float8 = Literal["", "tensorwise", "nocompile"]
_CHUNKS = 8
_MM = torch.ops.aten.mm.default
_SAVED = {
    _MM,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten.abs.default,
    torch.ops.aten.max.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Titan:
    """One model of torchtitan's, and how it is trained."""

    dim: int = 4096
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 14336
    vocab: int = 128256
    seq_len: int = 8192
    recompute: Recompute = "op"
    norm: Norm = "written-out"
    loss: Loss = "whole"
    compiled: Compiled = "nothing"
    """torchtitan compiles each block inside its checkpoint wrapper (apply_compile), and the loss from October 2024
    (e10cb949) to February 2025 and again from April 2025 (bbb1b616)."""
    tensor: int = 1
    """Ranks that compute one copy together (tensor.py)."""
    float8: Float8 = ""
    """Whose float8 linear layers: torchao's own, its float8nocompile prototype's, or none (float8.py)."""


class _WrittenOutNorm(nn.Module):
    """torchtitan/models/norms.py: RMSNorm."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        output = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x)
        return output * self.weight


def _norm(titan: Titan) -> nn.Module:
    return _WrittenOutNorm(titan.dim) if titan.norm == "written-out" else nn.RMSNorm(titan.dim, eps=1e-5)


def _apply_rotary(q: torch.Tensor, k: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """apply_rotary_emb: both are made complex before either is turned, and neither is let go before both are."""
    q_pairs = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
    k_pairs = torch.view_as_complex(k.float().reshape(*k.shape[:-1], -1, 2))
    rows = table[: q.shape[1]].view(1, q.shape[1], 1, -1)
    q_out = torch.view_as_real(q_pairs * rows).flatten(3)
    k_out = torch.view_as_real(k_pairs * rows).flatten(3)
    return q_out.type_as(q), k_out.type_as(k)


def _repeat(x: torch.Tensor, times: int) -> torch.Tensor:
    batch, length, heads, width = x.shape
    if times == 1:
        return x
    return x.unsqueeze(3).expand(batch, length, heads, times, width).reshape(batch, length, heads * times, width)


class _Attention(nn.Module):
    def __init__(self, titan: Titan) -> None:
        super().__init__()
        self.width, self.repeats = titan.dim // titan.heads, titan.heads // titan.kv_heads
        self.wq = nn.Linear(titan.dim, titan.dim, bias=False)
        self.wk = nn.Linear(titan.dim, titan.kv_heads * self.width, bias=False)
        self.wv = nn.Linear(titan.dim, titan.kv_heads * self.width, bias=False)
        self.wo = nn.Linear(titan.dim, titan.dim, bias=False)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.view(batch, length, -1, self.width)
        xk = xk.view(batch, length, -1, self.width)
        xv = xv.view(batch, length, -1, self.width)
        xq, xk = _apply_rotary(xq, xk, table)
        keys = _repeat(xk, self.repeats)
        values = _repeat(xv, self.repeats)
        xq = xq.transpose(1, 2)
        xk = keys.transpose(1, 2)
        xv = values.transpose(1, 2)
        output = F.scaled_dot_product_attention(xq, xk, xv, is_causal=True)
        output = output.transpose(1, 2).contiguous()
        output = output.view(batch, length, -1)
        result: torch.Tensor = self.wo(output)
        return result


class _FeedForward(nn.Module):
    def __init__(self, titan: Titan) -> None:
        super().__init__()
        self.w1 = nn.Linear(titan.dim, titan.hidden, bias=False)
        self.w2 = nn.Linear(titan.hidden, titan.dim, bias=False)
        self.w3 = nn.Linear(titan.dim, titan.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return result


class _Block(nn.Module):
    """A block inside its checkpoint wrapper (distributed/algorithms/_checkpoint/checkpoint_wrapper.py)."""

    def __init__(self, titan: Titan, index: int) -> None:
        super().__init__()
        self.attention = _Attention(titan)
        self.feed_forward = _FeedForward(titan)
        self.attention_norm = _norm(titan)
        self.ffn_norm = _norm(titan)
        full = titan.recompute == "full" or (titan.recompute == "every-2nd" and index % 2 == 1)
        self.again: Callable[..., Any] | None = None
        if full or titan.recompute == "op":
            how = {"context_fn": _contexts} if titan.recompute == "op" else {}
            self.again = partial(checkpoint, self._forward, use_reentrant=False, preserve_rng_state=False, **how)

    def _forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        h = x + self.attention(self.attention_norm(x), table)
        out: torch.Tensor = h + self.feed_forward(self.ffn_norm(h))
        return out

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self._forward(x, table) if self.again is None else self.again(x, table)
        return result


def _contexts() -> Any:
    """parallelize_llama.py: all that computes much is saved, but for every second matrix product."""
    seen: dict[str, int] = defaultdict(int)

    def policy(ctx: Any, function: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        mode = "recompute" if ctx.is_recompute else "forward"
        if function == _MM:
            seen[mode] += 1
        saved = function in _SAVED and not (function == _MM and seen[mode] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class TitanModel(nn.Module):
    """torchtitan's Transformer; called with labels it is the step of train.py as well, which drops logits early."""

    def __init__(self, titan: Titan) -> None:
        super().__init__()
        self.titan = titan
        self.tok_embeddings = nn.Embedding(titan.vocab, titan.dim)
        table = torch.empty(titan.seq_len, titan.dim // titan.heads // 2, dtype=torch.complex64)
        self.register_buffer("freqs_cis", table, persistent=True)
        self.layers = nn.ModuleDict({str(index): _Block(titan, index) for index in range(titan.layers)})
        self.norm = _norm(titan)
        self.output = nn.Linear(titan.dim, titan.vocab, bias=False)
        self.loss = _CrossEntropy()

    def compiled_parts(self) -> tuple[str, ...]:
        """Modules that torch.compile is called for."""
        if self.titan.compiled == "nothing":
            return ()
        blocks = tuple(f"layers.{index}" for index in self.layers)
        return (*blocks, "loss") if self.titan.compiled == "blocks and loss" else blocks

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h, self.freqs_cis)
        h = self.norm(h)
        return self._loss(self.output(h), labels)

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """train.py: loss_fn; torchtitan/components/loss.py: chunked_cross_entropy_loss of March 2025."""
        if self.titan.loss == "whole":
            result: torch.Tensor = self.loss(logits, labels)
            return result
        total: Any = 0.0
        pieces = zip(list(logits.chunk(_CHUNKS, dim=1)), list(labels.chunk(_CHUNKS, dim=1)), strict=True)
        for some, wanted in pieces:
            total += self.loss(some, wanted)
        result = total / _CHUNKS
        return result


class _CrossEntropy(nn.Module):
    """cross_entropy_loss, as a module so that it can be compiled on its own."""

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))
