"""A call without gradients: the whole batch through one stage after the other, its logits on every rank."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def evaluated(
    parts: list[Any],
    numbers: list[int],
    ranks: int,
    group: Any,
    ids: Tensor,
    words: dict[str, Tensor],
    hidden: torch.dtype,
    sizes: tuple[int, int],
) -> Tensor:
    """Logits [batch, sequence, vocabulary] of a batch, on every rank of the pipeline.

    `parts` are this rank's stages, `numbers` theirs in the pipeline; `sizes` width and vocabulary.
    """
    place, stages = dist.get_rank(group), len(parts) * ranks
    width, vocabulary = sizes
    value: Tensor = ids
    with torch.no_grad():
        for stage in range(stages):
            if stage % ranks != place:
                continue
            if stage and ranks > 1:
                value = torch.empty(*ids.shape, width, dtype=hidden, device=ids.device)
                dist.recv(value, group=group, group_src=(stage - 1) % ranks)
            value = parts[numbers.index(stage)](value, **words)
            if stage + 1 < stages and ranks > 1:
                dist.send(value.contiguous(), group=group, group_dst=(stage + 1) % ranks)
        last = (stages - 1) % ranks
        found = value.float() if place == last else torch.empty(*ids.shape, vocabulary, device=ids.device)
        dist.broadcast(found.contiguous() if place == last else found, group=group, group_src=last)
    return found
