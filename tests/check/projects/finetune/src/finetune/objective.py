"""What is minimised: the answers' cross entropy, with a penalty on large logits."""

import torch
from torch.nn import functional as F

from finetune.data import IGNORED

PENALTY = 1e-4


def answer_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    shifted = logits[:, :-1].flatten(0, 1)
    wanted = labels[:, 1:].flatten()
    loss = F.cross_entropy(shifted, wanted, ignore_index=IGNORED)
    largest = shifted.amax(dim=-1)
    return loss + PENALTY * largest.float().square().mean()
