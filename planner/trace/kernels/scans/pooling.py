"""Image pooling whose mask of padding patches would have to be computed at full size to be known."""

from collections.abc import Callable
from typing import Any

import torch

Pool = Callable[[Any, torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


def unpadded(pool: Pool) -> Pool:
    """`_avg_pool_by_positions(self, hidden_states, positions, length)` with a mask [batch, length] of all true.

    transformers models/gemma4/modeling_gemma4.py: Gemma4VisionPooler. The pooling itself runs as it is; the images
    given have no padding patches, so every pooled token is a real one.
    """

    def pool_unpadded(
        self: Any, hidden_states: torch.Tensor, pixel_position_ids: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, mask = pool(self, hidden_states, pixel_position_ids, length)
        return output, torch.ones(mask.shape, dtype=torch.bool, device=mask.device)

    return pool_unpadded
