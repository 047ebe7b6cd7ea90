"""TRL's tiled log-probabilities on meta: what they allocate, keep and overwrite; kernels write in place.

Mirrors trl 1.16 trl/kernels/chunked_logprob.py (ChunkedLogProbFunction, on CUDA with Triton) and trainer/utils.py
(add_fused_lm_head, FusedCausalLMOutput). Custom functions have untyped contexts, hence Any.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

TOKENS, WORDS = 4096, 32768
"""TOKEN_CHUNK_SIZE, and trainer/utils.py: _CHUNKED_LOGPROB_CHUNK_SIZE."""
_STATISTICS = 7
"""Running sums and maxima of each token, fp32."""


@dataclass
class TiledOutput(ModelOutput):
    """FusedCausalLMOutput, of the fields that SFTTrainer asks for."""

    loss: torch.Tensor | None = None
    log_probs: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    is_top1: torch.Tensor | None = None
    label_mask: torch.Tensor | None = None


def tiled_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> TiledOutput:
    """What the patched forward makes of the last hidden states [B, S, H] and labels [B, S]; every label counts."""
    rows, targets = hidden[:, :-1], labels[:, 1:]
    mask = targets != -100
    counted = _Counted.apply(rows)
    found = _Tiled.apply(counted, head.weight, getattr(head, "bias", None), _taken(targets))
    log_probs, entropy, is_top1 = (x.new_zeros(mask.shape).masked_scatter(mask, x) for x in found)
    loss = -log_probs.sum() / mask.sum().clamp(min=1)
    return TiledOutput(loss=loss, log_probs=log_probs, entropy=entropy, is_top1=is_top1, label_mask=mask)


def sft_loss(outputs: TiledOutput) -> torch.Tensor:
    """trl/trainer/sft_trainer.py: SFTTrainer.compute_loss, which leaves the model's own loss unused."""
    assert outputs.log_probs is not None
    assert outputs.label_mask is not None
    per_token = -outputs.log_probs
    return per_token.sum() / torch.as_tensor(outputs.label_mask.sum()).clamp(min=1)


class _Counted(torch.autograd.Function):
    """`hidden_states[mask]` where every label counts: indices of the tokens, and a copy of their rows."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        ctx.shape = rows.shape
        ctx.indices = _nonzero(rows)
        return rows.new_empty(rows.shape[0] * rows.shape[1], rows.shape[2])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        """index_backward adds into zeros; what its sort takes is small."""
        return grads[0].new_zeros(ctx.shape)


def _nonzero(rows: torch.Tensor) -> torch.Tensor:
    """A boolean index as aten sees it: one int64 for each token and dimension."""
    return rows.new_empty(rows.shape[0] * rows.shape[1], 2, dtype=torch.int64)


def _taken(targets: torch.Tensor) -> torch.Tensor:
    return targets.new_empty(targets.numel())


class _Tiled(torch.autograd.Function):
    """ChunkedLogProbFunction with entropy and is_top1."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        tokens = hidden.shape[0]
        under = torch.is_autocast_enabled("cuda")
        computed = torch.get_autocast_dtype("cuda") if under else hidden.dtype
        # All of them stand until forward returns, those that nobody asked for too.
        held = [torch.zeros(tokens, dtype=torch.float32, device=hidden.device) for _ in range(_STATISTICS)]
        running_max, sum_exp, x_sum_exp, before, target = *held[:3], *held[5:]
        tile = torch.empty(min(tokens, TOKENS), WORDS, dtype=computed, device=hidden.device)
        for rows in hidden.split(TOKENS):
            rows = rows.to(computed)
            for start in range(0, weight.shape[0], WORDS):
                _logits(tile, rows, weight[start : start + WORDS].to(computed))
        log_z = running_max + torch.log(sum_exp)
        log_probs = target - log_z
        entropy = log_z - x_sum_exp / sum_exp
        is_top1 = (target >= running_max) & (target > before)
        ctx.save_for_backward(hidden, weight, bias, targets, log_z, entropy)
        ctx.computed = computed
        ctx.mark_non_differentiable(is_top1)
        return log_probs, entropy, is_top1

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, bias, *_ = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        sums = [
            torch.zeros(tensor.shape, dtype=torch.float32, device=hidden.device) if need else None
            for tensor, need in zip((hidden, weight, bias), wanted, strict=False)
        ]
        tile = torch.empty(min(hidden.shape[0], TOKENS), WORDS, dtype=ctx.computed, device=hidden.device)
        dense = [grad.float().contiguous() for grad in grads[:2] if grad is not None]
        for rows in hidden.split(TOKENS):
            rows = rows.to(ctx.computed)
            for start in range(0, weight.shape[0], WORDS):
                _logits(tile, rows, weight[start : start + WORDS].to(ctx.computed))
                _count_products(tile, rows, weight[start : start + WORDS], sums)
        del dense
        given = zip((hidden, weight, bias), sums, strict=True)
        return (*(None if total is None else total.to(tensor.dtype) for tensor, total in given), None)


def _logits(tile: torch.Tensor, rows: torch.Tensor, words: torch.Tensor) -> None:
    """One product into the buffer; the statistics are folded, or the gradient written over it, in place."""
    torch.ops.aten.mm.out(rows, words.t(), out=tile[: rows.shape[0], : words.shape[0]])


def _count_products(
    tile: torch.Tensor, rows: torch.Tensor, words: torch.Tensor, sums: list[torch.Tensor | None]
) -> None:
    """_addmm_fp32, which on CUDA adds a 16-bit product to fp32 sums without a temporary: work, and no memory."""
    gradient = tile[: rows.shape[0], : words.shape[0]]
    if sums[0] is not None:
        torch.ops.aten.mm.out(gradient, words.to(tile.dtype), out=_seen(sums[0], rows.shape[0], tile.dtype))
    if sums[1] is not None:
        torch.ops.aten.mm.out(gradient.t(), rows, out=_seen(sums[1], words.shape[0], tile.dtype))


def _seen(total: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    """A stretch of the sum's own memory in the product's type: meta has no addmm with another type of result."""
    found = total[:count]
    return found if found.dtype == dtype else found.view(dtype)[:, : found.shape[1]]
