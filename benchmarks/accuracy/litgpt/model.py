"""litgpt's models as its published finetuning runs had them, as far as memory goes: modules, adapters, chunked loss.

Mirrored from Lightning-AI/litgpt (lit_gpt/ until March 2024): model.py, lora.py, adapter.py, adapter_v2.py, rmsnorm.py
and utils.py: chunked_cross_entropy, at 0cc02afa (October 2023) for the resource tables and at 5895df10 (April 2024)
and later for the table of configurations; what changed between is named by `Lit.since`. lightning 2.1
fabric/plugins/precision/half.py: convert_output makes the logits fp32.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.accuracy.litgpt.linear import AdapterLinear, LoraLinear, LoraQkv, frozen, plain_linear

Peft = Literal["lora", "adapter", "adapter_v2"]
_LOGIT_ROWS = 128
_PROMPT = 10
_FIRST_ADAPTED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lit:
    """One model of litgpt's, and how it is finetuned."""

    dim: int
    layers: int
    heads: int
    groups: int
    head_size: int
    hidden: int
    vocab: int
    rotary: float = 1.0
    parallel: bool = False
    shared_norm: bool = False
    bias: bool = False
    norm: Literal["layer", "rms"] = "rms"
    mlp: Literal["neox", "llama", "gemma"] = "llama"
    softcap: float | None = None
    post_norms: bool = False
    scaled_embedding: bool = False
    unit_offset: bool = False
    peft: Peft = "lora"
    rank: int = 8
    dropout: float = 0.05
    targets: frozenset[str] = frozenset({"query", "value"})
    quantised: Literal["", "nf4", "nf4-dq"] = ""
    since: Literal["2023-10", "2024-04", "2024-05"] = "2023-10"
    """Code as of then. 2024-04: LoRA's key projections of their own size; 2024-05: f84b6109, zero padding in place."""


class _RmsNorm(nn.Module):
    """rmsnorm.py, later model.py: computed in fp32 (6178c7cc), the weight's product in 16 bits from 2024 on."""

    def __init__(self, lit: Lit) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(lit.dim), requires_grad=False)
        self.late, self.unit = lit.since != "2023-10", lit.unit_offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = x.dtype
        x = x.float()
        norm_x = torch.mean(x * x, dim=-1, keepdim=True)
        x_normed = x * torch.rsqrt(norm_x + 1e-5)
        if not self.late:
            return (self.weight * x_normed).to(dtype=dtype)
        x_normed = x_normed.to(dtype=dtype)
        return x_normed * (1 + self.weight) if self.unit else x_normed * self.weight


def _norm(lit: Lit) -> nn.Module:
    trained = lit.peft == "adapter_v2"
    norm = _RmsNorm(lit) if lit.norm == "rms" else nn.LayerNorm(lit.dim)
    for parameter in norm.parameters():
        parameter.requires_grad = trained
    return norm


def _linear(lit: Lit, inputs: int, outputs: int, target: str, *, bias: bool | None = None) -> nn.Module:
    has_bias = lit.bias if bias is None else bias
    if lit.peft == "adapter_v2":
        return AdapterLinear(inputs, outputs, has_bias, lit.quantised)
    if lit.peft == "lora":
        rank = lit.rank if target in lit.targets else 0
        return LoraLinear(inputs, outputs, has_bias, lit.quantised, rank, lit.dropout)
    return plain_linear(inputs, outputs, has_bias, lit.quantised)


def _rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.size(-1) // 2
    x1, x2 = x[..., :half], x[..., half:]
    rotated = torch.cat((-x2, x1), dim=-1)
    roped = (x * cos) + (rotated * sin)
    return roped.to(dtype=x.dtype)


class _Attention(nn.Module):
    def __init__(self, lit: Lit, index: int) -> None:
        super().__init__()
        self.lit = lit
        width = (lit.heads + 2 * lit.groups) * lit.head_size
        adapted = lit.targets & {"query", "key", "value"}
        if lit.peft == "lora" and adapted:
            sizes = (lit.heads * lit.head_size, lit.groups * lit.head_size, lit.groups * lit.head_size)
            enabled = tuple(name in adapted for name in ("query", "key", "value"))
            self.attn: nn.Module = LoraQkv(
                lit.dim,
                sizes,
                enabled,
                lit.bias,
                lit.quantised,
                lit.rank,
                lit.dropout,
                in_place=lit.since == "2024-05",
            )
        else:
            self.attn = _linear(lit, lit.dim, width, "attention")
        self.proj = _linear(lit, lit.heads * lit.head_size, lit.dim, "projection")
        self.prompted = lit.peft != "lora" and index >= _FIRST_ADAPTED
        if self.prompted:
            self.adapter_wte = nn.Embedding(_PROMPT, lit.dim)
            # validate() has filled the cache before training, without gradients: adapter_wte is never reached again.
            frozen(self.adapter_wte)
            self.gating_factor = nn.Parameter(torch.zeros(1, 1, lit.heads, 1))
            for name in ("ak", "av"):
                shape = (1, lit.heads, _PROMPT, lit.head_size)
                self.register_buffer(name, torch.empty(shape, dtype=torch.bfloat16), persistent=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        lit = self.lit
        batch, length, _ = x.size()
        qkv = self.attn(x)
        per_group = lit.heads // lit.groups
        qkv = qkv.view(batch, length, lit.groups, per_group + 2, lit.head_size)
        qkv = qkv.permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((per_group, 1, 1), dim=2)
        if lit.groups != lit.heads:
            k = k.expand(batch, lit.groups, per_group, length, lit.head_size)
            v = v.expand(batch, lit.groups, per_group, length, lit.head_size)
        q = q.reshape(batch, -1, length, lit.head_size)
        k = k.reshape(batch, -1, length, lit.head_size)
        v = v.reshape(batch, -1, length, lit.head_size)
        turned = int(lit.rotary * lit.head_size)
        q_roped = _rope(q[..., :turned], cos, sin)
        k_roped = _rope(k[..., :turned], cos, sin)
        q = torch.cat((q_roped, q[..., turned:]), dim=-1)
        k = torch.cat((k_roped, k[..., turned:]), dim=-1)
        y = self._attend(q, k, v)
        y = y.reshape(batch, length, lit.heads * lit.head_size)
        result: torch.Tensor = self.proj(y)
        return result

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = self._softcapped(q, k, v) if self.lit.softcap else F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2)
        if not self.prompted:
            return y
        mask = torch.ones(q.size(2), _PROMPT, dtype=torch.bool, device=q.device)
        ay = F.scaled_dot_product_attention(q, self.ak, self.av, attn_mask=mask)
        return y + self.gating_factor * ay.transpose(1, 2)

    def _softcapped(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """model.py of July 2024; every second layer's window (4096) is made part of the mask as well."""
        cap = self.lit.softcap
        assert cap is not None
        scores = q @ k.mT * (1.0 / math.sqrt(self.lit.head_size))
        scores = torch.tanh(scores / cap) * cap
        mask = torch.ones(q.size(2), q.size(2), dtype=q.dtype, device=q.device).triu(diagonal=1)
        mask.masked_fill_(mask.bool(), torch.finfo(q.dtype).min)
        scores = scores + mask
        scores = F.softmax(scores, dim=-1, dtype=torch.float).to(dtype=q.dtype)
        return scores @ v


class _NeoxMlp(nn.Module):
    def __init__(self, lit: Lit) -> None:
        super().__init__()
        self.fc = _linear(lit, lit.dim, lit.hidden, "mlp")
        self.proj = _linear(lit, lit.hidden, lit.dim, "mlp")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x)
        x = F.gelu(x)
        result: torch.Tensor = self.proj(x)
        return result


class _LlamaMlp(nn.Module):
    def __init__(self, lit: Lit) -> None:
        super().__init__()
        self.fc_1 = _linear(lit, lit.dim, lit.hidden, "mlp")
        self.fc_2 = _linear(lit, lit.dim, lit.hidden, "mlp")
        self.proj = _linear(lit, lit.hidden, lit.dim, "mlp")
        self.gelu = lit.mlp == "gemma"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x_fc_1 = self.fc_1(x)
        x_fc_2 = self.fc_2(x)
        x = (F.gelu(x_fc_1, approximate="tanh") if self.gelu else F.silu(x_fc_1)) * x_fc_2
        result: torch.Tensor = self.proj(x)
        return result


class _Block(nn.Module):
    def __init__(self, lit: Lit, index: int) -> None:
        super().__init__()
        self.lit = lit
        self.norm_1 = _norm(lit)
        self.attn = _Attention(lit, index)
        self.norm_2 = None if lit.shared_norm else _norm(lit)
        self.mlp = _NeoxMlp(lit) if lit.mlp == "neox" else _LlamaMlp(lit)
        self.post_attention_norm = _norm(lit) if lit.post_norms else nn.Identity()
        self.post_mlp_norm = _norm(lit) if lit.post_norms else nn.Identity()

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x_normed = self.norm_1(x)
        attention_output = self.attn(x_normed, cos, sin)
        attention_output = self.post_attention_norm(attention_output)
        if self.lit.parallel:
            x_normed = x_normed if self.norm_2 is None else self.norm_2(x)
            return self.mlp(x_normed) + attention_output + x
        assert self.norm_2 is not None
        x = attention_output + x
        return self.post_mlp_norm(self.mlp(self.norm_2(x))) + x


class LitModel(nn.Module):
    """litgpt's GPT; called with targets it is the body of finetune/lora.py: fit as well, whose loop keeps `logits`."""

    def __init__(self, lit: Lit, seq_len: int) -> None:
        super().__init__()
        self.lit = lit
        self.lm_head = _linear(lit, lit.dim, lit.vocab, "head", bias=lit.bias and lit.shared_norm)
        self.wte = nn.Embedding(lit.vocab, lit.dim)
        frozen(self.wte)
        self.h = nn.ModuleList(_Block(lit, index) for index in range(lit.layers))
        self.ln_f = _norm(lit)
        turned = int(lit.rotary * lit.head_size)
        for name in ("cos", "sin"):
            self.register_buffer(name, torch.empty(seq_len, turned, dtype=torch.float32), persistent=False)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> "Outputs":
        return Outputs(self._converted(self._chunks(tokens)), labels)

    def _chunks(self, tokens: torch.Tensor) -> list[torch.Tensor]:
        cos, sin = self.cos[: tokens.size(1)], self.sin[: tokens.size(1)]
        x = self.wte(tokens)
        if self.lit.scaled_embedding:
            x = x * (self.lit.dim**0.5)
        for block in self.h:
            x = block(x, cos, sin)
        x = self.ln_f(x)
        return [self.lm_head(x_i) for x_i in x.split(_LOGIT_ROWS, dim=1)]

    def _converted(self, data: list[torch.Tensor]) -> list[torch.Tensor]:
        """_FabricModule.forward: `output` names the 16-bit chunks until all are converted."""
        return [chunk.float() for chunk in data]


class Outputs:
    """What the loop holds as `logits`; the loss is computed once that name is bound."""

    def __init__(self, logits: list[torch.Tensor], labels: torch.Tensor) -> None:
        self.logits, self.labels = logits, labels

    @property
    def loss(self) -> torch.Tensor:
        """finetune/lora.py: fit, from the model's call on."""
        self.logits[-1] = self.logits[-1][..., :-1, :]
        return _loss(self.logits, self.labels[..., 1:])


def _loss(logits: list[torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    """chunked_cross_entropy; Python still holds each list when the function ends."""
    logit_chunks = [chunk.reshape(-1, chunk.size(-1)) for chunk in logits]
    target_chunks = [chunk.reshape(-1) for chunk in targets.split(logits[0].size(1), dim=1)]
    losses = [
        F.cross_entropy(logit, target, ignore_index=-1, reduction="none")
        for logit, target in zip(logit_chunks, target_chunks, strict=True)
    ]
    return torch.cat(losses).mean()
