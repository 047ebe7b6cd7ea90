"""KempnerForge's transformer as far as memory goes: modules, full checkpointing, loss.

Mirrored from KempnerInstitute/KempnerForge at 5666d0d1: kempnerforge/model/transformer.py, attention.py, position.py
(apply_rope), norm.py (RMSNorm), mlp.py (SwiGLUMLP), embedding.py; kempnerforge/training/loss.py (cross_entropy_loss);
kempnerforge/distributed/parallel.py (apply_ac).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Forge:
    """Sizes of one model, and over how many ranks a copy is spread."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    vocab: int
    seq_len: int
    tensor: int = 1
    recomputed: bool = True
    compiled: bool = True


class _Norm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = x.dtype
        x = x.float()
        norm = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (norm * self.weight).to(dtype)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    x1, x2 = x[..., :half], x[..., half:]
    shape = [1] * (x.ndim - 2) + list(cos.shape)
    cos, sin = cos.view(*shape).to(x.dtype), sin.view(*shape).to(x.dtype)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


class _Attention(nn.Module):
    def __init__(self, forge: Forge) -> None:
        super().__init__()
        self.width, self.repeats = forge.dim // forge.heads, forge.heads // forge.kv_heads
        self.q_proj = nn.Linear(forge.dim, forge.dim, bias=False)
        self.k_proj = nn.Linear(forge.dim, forge.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(forge.dim, forge.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(forge.dim, forge.dim, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, -1, self.width)
        k = self.k_proj(x).view(batch, length, -1, self.width)
        v = self.v_proj(x).view(batch, length, -1, self.width)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        q = _rotated(q, cos, sin)
        k = _rotated(k, cos, sin)
        if self.repeats > 1:
            k = k.repeat_interleave(self.repeats, dim=1)
            v = v.repeat_interleave(self.repeats, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = out.transpose(1, 2).contiguous().view(batch, length, -1)
        result: torch.Tensor = self.o_proj(out)
        return result


class _FeedForward(nn.Module):
    def __init__(self, forge: Forge) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(forge.dim, forge.hidden, bias=False)
        self.up_proj = nn.Linear(forge.dim, forge.hidden, bias=False)
        self.down_proj = nn.Linear(forge.hidden, forge.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return result


class _Block(nn.Module):
    """A block inside its checkpoint wrapper, which is not reentrant and keeps no random state of its own."""

    def __init__(self, forge: Forge) -> None:
        super().__init__()
        self.attention_norm = _Norm(forge.dim)
        self.attention = _Attention(forge)
        self.mlp_norm = _Norm(forge.dim)
        self.mlp = _FeedForward(forge)
        self.again: Any = partial(checkpoint, self._forward, use_reentrant=False) if forge.recomputed else None

    def _forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        x = x + self.mlp(self.mlp_norm(x))
        return x

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = (self.again or self._forward)(x, cos, sin)
        return result


class _Embedding(nn.Module):
    def __init__(self, forge: Forge) -> None:
        super().__init__()
        self.embedding = nn.Embedding(forge.vocab, forge.dim)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.embedding(tokens)
        return result


class _Head(nn.Module):
    def __init__(self, forge: Forge) -> None:
        super().__init__()
        self.proj = nn.Linear(forge.dim, forge.vocab, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.proj(x)
        return result


class _Transformer(nn.Module):
    def __init__(self, forge: Forge) -> None:
        super().__init__()
        self.token_embedding = _Embedding(forge)
        table = torch.empty(forge.seq_len, forge.dim // forge.heads // 2, dtype=torch.float32)
        self.register_buffer("rope_cos", table)
        self.register_buffer("rope_sin", table.clone())
        self.layers = nn.ModuleDict({str(index): _Block(forge) for index in range(forge.layers)})
        self.norm = _Norm(forge.dim)
        self.output_head = _Head(forge)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.token_embedding(tokens)
        for layer in self.layers.values():
            h = layer(h, self.rope_cos, self.rope_sin)
        result: torch.Tensor = self.output_head(self.norm(h))
        return result


TRANSFORMER = "transformer"


class ForgeModel(nn.Module):
    """The step of scripts/train.py: its loss stands behind the module that FSDP2 wraps, and logits stay bound until the
    next ones."""

    def __init__(self, forge: Forge) -> None:
        super().__init__()
        self.forge = forge
        self.transformer = _Transformer(forge)

    def compiled_parts(self) -> tuple[str, ...]:
        """Blocks: FSDP's hooks cut the whole model's graph around them. Those whose tensors are DTensors are counted as
        written, which says nothing of a peak that lies in the loss."""
        if not self.forge.compiled or self.forge.tensor > 1:
            return ()
        return tuple(f"{TRANSFORMER}.layers.{index}" for index in range(self.forge.layers))

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> Any:
        logits = self.transformer(tokens)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))
        return {"loss": loss, "logits": logits}
