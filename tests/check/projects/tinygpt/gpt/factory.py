"""What `plan` builds without the training loop."""

import torch

from gpt.config import GPTConfig
from gpt.model import GPT


def backbone() -> tuple[GPT, dict[str, torch.Tensor]]:
    """The model of the cluster job, with the inputs of one step."""
    config = GPTConfig(context=512, layers=6)
    tokens = torch.zeros(4, config.context, dtype=torch.long)
    return GPT(config), {"tokens": tokens, "targets": tokens.clone()}
