"""A GPT whose experts' exchanges go beside another micro batch's layers (`--overlap-moe-expert-parallel-comm`).

megatron/core/pipeline_parallel/combined_1f1b.py, models/common/model_chunk_schedule_plan.py:
TransformerModelChunkSchedulePlan.run. One micro batch's layers go forward as another's go back, one for one, so that no
more than one micro batch's layers stand; its logits come when the other's last layer has gone back, and before the
other's embedding does.
"""

from dataclasses import dataclass

import torch
from torch import nn

from gpu_plan.planner.megatron.part import GATHERED, Part
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.megatron.group import begin_groups
from gpu_plan.planner.trace.megatron.loss import loss_of
from gpu_plan.planner.trace.megatron.stage import Stage, stage_batch


@dataclass(frozen=True, slots=True)
class Overlapped:
    """All layers on one pipeline rank, several micro batches."""

    def build(self, part: Part) -> nn.Module:
        """The model on meta."""
        begin_groups()
        return _Overlapped(part.model, part.layout, part.cut)

    def batch(self, part: Part, micro_batch: int, seq_len: int) -> TrainingBatch:
        """As a GPT's."""
        return stage_batch(part, micro_batch, seq_len)


class _Overlapped(Stage):
    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        assert self.embedding is not None
        assert self.output_layer is not None
        x = self.decoder(self.embedding(batch["input_ids"], batch["position_ids"]))
        beside = _of_the_other(batch, x, dropped=self._layout.hidden_dropout > 0)
        logits = self.output_layer(x, batch.get(GATHERED))
        del x
        loss = loss_of(logits, batch["labels"], batch["loss_mask"], self._layout)
        del beside
        return loss


def _of_the_other(batch: dict[str, torch.Tensor], x: torch.Tensor, *, dropped: bool) -> list[torch.Tensor]:
    """What stands of the micro batch whose embedding has yet to go back: what it was given (ModelChunkState), what its
    embedding put out, the mask of what was dropped of that, and the gradient of it."""
    given = [torch.empty_like(one) for name, one in batch.items() if name != GATHERED]
    embedded = [torch.empty_like(x, requires_grad=False) for _ in range(2)]
    return [*given, *embedded, *([torch.empty(x.shape, dtype=torch.bool, device=x.device)] if dropped else [])]
