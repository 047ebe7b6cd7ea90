"""Losses of older transformers, as declared variants of the step: `--set loss.variant`.

From 4.46 on loss/loss_utils.py: ForCausalLMLoss; up to 4.48 it shifts the fp32 logits, which copies them, since 4.49
the labels. Up to 4.45 the model's forward (models/llama/modeling_llama.py) upcasts what its head puts out, and shifts.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

from gpu_plan.planner.errors import UsageError

IGNORED = -100
_CAUSAL = "ForCausalLM"


def shifted_loss(
    logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, ignore_index: int = IGNORED, **_: Any
) -> torch.Tensor:
    """transformers 4.46 to 4.48, loss/loss_utils.py: ForCausalLMLoss; the unshifted fp32 logits stay bound."""
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    targets = labels[..., 1:].contiguous()
    shifted = shifted.view(-1, vocab_size)
    targets = targets.view(-1)
    return F.cross_entropy(shifted, targets, ignore_index=ignore_index)


def upcast_head(head: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """transformers up to 4.45: the logits leave the model in fp32, its 16-bit ones are gone at once."""
    own = head.forward
    return lambda hidden: own(hidden).float()


@contextlib.contextmanager
def older_loss(model: Any, variant: str) -> Iterator[None]:
    """For the time of a step, the loss of `transformers-4.48` or `transformers-4.45`.

    UsageError where the model is none that transformers trains with its loss for causal language models.
    """
    from transformers.loss.loss_utils import LOSS_MAPPING

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = base.get_output_embeddings() if hasattr(base, "get_output_embeddings") else None
    if head is None or getattr(base, "loss_type", None) != _CAUSAL:
        raise UsageError(f"--set loss.variant={variant}: {type(base).__name__} has no loss of causal language models")
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(LOSS_MAPPING, {_CAUSAL: shifted_loss}))
        if variant == "transformers-4.45":
            stack.enter_context(mock.patch.object(head, "forward", upcast_head(head)))
        yield
