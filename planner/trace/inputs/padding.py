"""Batches whose samples differ in length: a mask beside the tokens, and no loss where it is zero.

A collator (transformers data/data_collator.py) pads to the longest sample, or every sample to one length, and hands on
an `attention_mask` of int64. What a model makes of it is traced: where a mask holds a zero, scaled dot-product
attention gets it whole (transformers masking_utils.py: _ignore_causal_mask_sdpa), and kernels without masks are out.
"""

from dataclasses import replace
from typing import Any

import torch

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.model.family import forward_names
from gpu_plan.planner.trace.inputs.batch import IGNORED_LABEL, TrainingBatch
from gpu_plan.planner.trace.inputs.known import MAX_ELEMENTS

NONE, LONGEST = "none", "longest"
_SHORTER = 2
"""Under `longest`, samples after the first are half as long; memory asks only whether any is shorter."""


def padded(model: Any, batch: TrainingBatch, padding: str) -> TrainingBatch:
    """`batch` with a mask: `longest`, or the share of every sample that is padding (`0.25`).

    UsageError where the model takes no mask or the batch holds no tokens.
    """
    if padding == NONE:
        return batch
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    tokens = batch.tensors.get("input_ids")
    if tokens is None or "attention_mask" not in forward_names(base):
        raise UsageError(f"--set data.padding={padding}: {type(base).__name__} takes no attention mask beside tokens")
    samples, length = tokens.shape
    if "input_ids" not in batch.values:
        raise UsageError(
            f"--set data.padding={padding}: of a micro batch of {samples:,} x {length:,} tokens no mask is followed, at"
            f" most of {MAX_ELEMENTS:,}: give a smaller --micro-batch"
        )
    kept = [_kept(sample, length, padding) for sample in range(samples)]
    mask = (torch.arange(length, device="cpu")[None, :] < torch.tensor(kept, device="cpu")[:, None]).long()
    values = {**batch.values, "attention_mask": mask}
    labels = values.get("labels")
    if labels is not None and labels.shape == mask.shape:
        values["labels"] = torch.where(mask.bool(), labels, IGNORED_LABEL)
    tensors = {**batch.tensors, "attention_mask": torch.empty_like(mask, device="meta")}
    return replace(batch, tensors=tensors, values=values)


def _kept(sample: int, length: int, padding: str) -> int:
    """Tokens of one sample that are no padding."""
    if padding == LONGEST:
        return length if sample == 0 else max(1, length // _SHORTER)
    return max(1, length - round(length * float(padding)))
