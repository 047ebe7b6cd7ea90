"""One stage of BertModel (megatron/core/models/bert/bert_model.py, bert_lm_head.py, pooler.py, bert_layer_specs.py)."""

from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.accuracy.megatron.encoders.attending import padded
from gpu_plan.planner.megatron.part import GATHERED, Part
from gpu_plan.planner.pipeline.places import RECEIVED
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.megatron.group import begin_groups
from gpu_plan.planner.trace.megatron.local import Gathers, TorchNorm
from gpu_plan.planner.trace.megatron.loss import Head, loss_of
from gpu_plan.planner.trace.megatron.products.linear import give_dummies
from gpu_plan.planner.trace.megatron.products.norms import Norm
from gpu_plan.planner.trace.megatron.stage import Embedding, layer_of, stage_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Bert:
    """An encoder with its head of masked words, and one that tells which sentence came first."""

    token_types: int = 2

    def build(self, part: Part) -> nn.Module:
        """The stage on meta."""
        begin_groups()
        return _Bert(part, self.token_types)

    def batch(self, part: Part, micro_batch: int, seq_len: int) -> TrainingBatch:
        """As a GPT's."""
        return stage_batch(part, micro_batch, seq_len)


class _Bert(nn.Module):
    def __init__(self, part: Part, token_types: int) -> None:
        super().__init__()
        model, layout, cut = part.model, part.layout, part.cut
        hidden, half = model.hidden, {"dtype": torch.bfloat16, "device": "meta"}
        self.embedding = Embedding(model, layout) if cut.is_first else None
        self.tokentypes = nn.Embedding(token_types, hidden, **half) if cut.is_first else None  # type: ignore[arg-type]
        layers = range(cut.first, cut.end)
        self.encoder = padded(nn.ModuleList(layer_of(model, layout, number) for number in layers))
        self.last = cut.is_last
        self._layout = layout
        if cut.is_last:
            self.final_layernorm = Norm(hidden, bias=True)
            self.lm_dense = nn.Linear(hidden, hidden, **half)  # type: ignore[arg-type]
            self.lm_norm = TorchNorm(hidden)
            self.output_layer = Head(model, layout)
            self.output_bias = nn.Parameter(torch.empty(self.output_layer.weight.shape[0], **half))  # type: ignore[arg-type]
            self.pooler = nn.Linear(hidden, hidden, **half)  # type: ignore[arg-type]
            self.binary_head = nn.Linear(hidden, 2, **half)  # type: ignore[arg-type]
            if self.embedding is not None:
                self.output_layer.weight = self.embedding.word_embeddings.weight
        if layout.fused_gradients:
            give_dummies(self)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        for module in self.modules():
            if isinstance(module, Gathers):
                module.gathered = batch.get(GATHERED)
        x = batch[RECEIVED] if self.embedding is None else self.embedding(batch["input_ids"], batch["position_ids"])
        for layer in self.encoder:
            x = layer(x)
        if not self.last:
            return x
        x = self.final_layernorm(x)
        pooled = torch.tanh(self.pooler(x[0]))
        found = self.lm_norm(nn.functional.gelu(self.lm_dense(x)))
        logits = self.output_layer(found, batch.get(GATHERED), self.output_bias)
        order = self.binary_head(pooled)
        del x, found, pooled
        return loss_of(logits, batch["labels"], batch["loss_mask"], self._layout) + order.float().sum()
