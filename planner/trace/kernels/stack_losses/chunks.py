"""Heads that are run chunk by chunk, and what of them stands until backward: torch's own operations.

torchtune 0.7 torchtune/modules/loss/cross_entropy_loss.py: LinearCrossEntropyLoss; LitGPT 0.5 litgpt/model.py:
GPT.forward (lm_head_chunk_size) and utils.py: chunked_cross_entropy.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers.utils import ModelOutput

IGNORED = -100
_TORCHTUNE_CHUNKS = 8
_LITGPT_TOKENS = 128


@dataclass
class ChunkedOutput(ModelOutput):
    """A loss, and the logits that the loop still names."""

    loss: torch.Tensor | None = None
    logits: list[torch.Tensor] | None = None


def torchtune_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ChunkedOutput:
    """hidden [B, S, H], labels [B, S]: rows that count are copied, then eight chunks, each in fp32 until backward."""
    targets = F.pad(labels[..., 1:], (0, 1), value=IGNORED).reshape(-1)
    rows = hidden.reshape(-1, hidden.shape[-1])
    counted = targets.new_empty(hidden.shape[0] * (hidden.shape[1] - 1))
    rows, targets = rows.index_select(0, counted), targets.index_select(0, counted)
    total = torch.zeros((), device=hidden.device)
    chunks = zip(rows.tensor_split(_TORCHTUNE_CHUNKS), targets.tensor_split(_TORCHTUNE_CHUNKS), strict=True)
    for chunk, target in chunks:
        total = total + _summed(head, chunk, target)
    return ChunkedOutput(loss=total / counted.numel())


def _summed(head: nn.Module, chunk: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """LinearCrossEntropyLoss.compute_cross_entropy, which lets go of the logits when it returns."""
    logits = head(chunk)
    return F.cross_entropy(logits.float(), target, reduction="sum", ignore_index=IGNORED)


def litgpt_output(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> ChunkedOutput:
    """hidden [B, S, H], labels [B, S]: logits of 128 tokens at a time, none upcast, all named until the next step."""
    logits = [head(chunk) for chunk in hidden.split(_LITGPT_TOKENS, dim=1)]
    logits[-1] = logits[-1][..., :-1, :]
    targets = labels[..., 1:]
    pieces = targets.split(logits[0].size(1), dim=1)
    losses = [
        F.cross_entropy(logit.reshape(-1, logit.size(-1)), piece.reshape(-1), ignore_index=IGNORED, reduction="none")
        for logit, piece in zip(logits, pieces, strict=False)
    ]
    counted = (targets != IGNORED).sum()
    loss = torch.cat(losses).sum() / counted.maximum(torch.ones_like(counted))
    return ChunkedOutput(loss=loss, logits=logits)
