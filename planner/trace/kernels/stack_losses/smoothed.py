"""transformers' own smoothed loss, which its Trainer computes of the logits behind the model's call.

transformers trainer.py: compute_loss pops the labels, so that the model computes no loss; trainer_pt_utils.py:
LabelSmoother, run here as it is.
"""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from gpu_plan.planner.errors import UsageError

_HELD = "_plan_labels"
"""Attribute of a model for the time of a step: the labels that it was not given."""
_EPSILON = 0.1
"""Which of the two losses weighs how much changes no tensor."""


@contextlib.contextmanager
def smoothed(model: Any, variant: str) -> Iterator[None]:
    """For the time of a step, the model gives logits alone. UsageError where it takes no labels.

    An encoder with a decoder is given the decoder's tokens by its collator (data/data_collator.py:
    DataCollatorForSeq2Seq).
    """
    base = _base(model)
    own = base.forward
    if "labels" not in inspect.signature(own).parameters:
        raise UsageError(f"--set loss.variant={variant}: {type(base).__name__} takes no labels")
    decoded = getattr(base, "prepare_decoder_input_ids_from_labels", None)

    def forward(*args: Any, labels: torch.Tensor, **others: Any) -> Any:
        if decoded is not None and "decoder_input_ids" not in others:
            others["decoder_input_ids"] = decoded(labels=labels)
        setattr(base, _HELD, labels)
        return own(*args, **others)

    try:
        with mock.patch.object(base, "forward", forward):
            yield
    finally:
        vars(base).pop(_HELD, None)


def loss_of_smoothed(model: Any, outputs: Any) -> torch.Tensor | None:
    """The smoothed loss of a model that was called without its labels, normalised over the update's tokens; None of any
    other."""
    from transformers.trainer_pt_utils import LabelSmoother

    base = _base(model)
    labels = vars(base).get(_HELD)
    if labels is None:
        return None
    shifts = type(base).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    count = torch.full((), labels.numel(), dtype=torch.int64, device=labels.device)
    smoother = LabelSmoother(epsilon=_EPSILON)
    loss: torch.Tensor = smoother(outputs, labels, shift_labels=shifts, num_items_in_batch=count)
    return loss


def _base(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model
