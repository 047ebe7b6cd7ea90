"""T5Model on one rank (megatron/core/models/T5/t5_model.py, t5_spec.py; Megatron-LM, examples/t5/pretrain_t5.py)."""

from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.accuracy.megatron.encoders.attending import DecoderLayer, padded
from gpu_plan.planner.megatron.part import GATHERED, Part
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.megatron.group import begin_groups
from gpu_plan.planner.trace.megatron.local import Gathers
from gpu_plan.planner.trace.megatron.loss import Head, loss_of
from gpu_plan.planner.trace.megatron.products.linear import give_dummies
from gpu_plan.planner.trace.megatron.products.norms import Norm
from gpu_plan.planner.trace.megatron.stage import Embedding, layer_of, stage_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class T5:
    """A decoder beside the part's own layers, which are the encoder's."""

    decoder_layers: int
    decoder_len: int

    def build(self, part: Part) -> nn.Module:
        """Both stacks on meta."""
        begin_groups()
        return _T5(part, self.decoder_layers)

    def batch(self, part: Part, micro_batch: int, seq_len: int) -> TrainingBatch:
        """Tokens of both stacks in one tensor, as broadcast_data unpacks them; labels are the decoder's."""
        tensors = dict(stage_batch(part, micro_batch, seq_len).tensors)
        both = seq_len + self.decoder_len
        for name in ("input_ids", "position_ids"):
            tensors[name] = torch.empty(micro_batch, both, dtype=torch.int64, device="meta")
        tensors["labels"] = torch.empty(micro_batch, self.decoder_len, dtype=torch.int64, device="meta")
        tensors["loss_mask"] = torch.empty(micro_batch, self.decoder_len, dtype=torch.float32, device="meta")
        return TrainingBatch(tensors=tensors, values={}, loss="cross entropy over the padded vocabulary")


class _T5(nn.Module):
    def __init__(self, part: Part, decoder_layers: int) -> None:
        super().__init__()
        model, layout = part.model, part.layout
        self.embedding = Embedding(model, layout)
        self.encoder = padded(nn.ModuleList(layer_of(model, layout, number) for number in range(model.layers)))
        self.encoder_norm = Norm(model.hidden, bias=True)
        self.decoder = nn.ModuleList(DecoderLayer(model, layout) for _ in range(decoder_layers))
        self.decoder_norm = Norm(model.hidden, bias=True)
        self.output_layer = Head(model, layout)
        self.output_layer.weight = self.embedding.word_embeddings.weight
        rows = self.output_layer.weight.shape[0]
        self.output_bias = nn.Parameter(torch.empty(rows, dtype=torch.bfloat16, device="meta"))
        self._layout = layout
        if layout.fused_gradients:
            give_dummies(self)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        for module in self.modules():
            if isinstance(module, Gathers):
                module.gathered = batch.get(GATHERED)
        labels, ids, positions = batch["labels"], batch["input_ids"], batch["position_ids"]
        split = ids.shape[1] - labels.shape[1]
        x = self.embedding(ids[:, :split], positions[:, :split])
        for layer in self.encoder:
            x = layer(x)
        encoded = self.encoder_norm(x)
        x = self.embedding(ids[:, split:], positions[:, split:])
        for layer in self.decoder:
            x = layer(x, encoded)
        x = self.decoder_norm(x)
        logits = self.output_layer(x, batch.get(GATHERED), self.output_bias)
        del x, encoded
        return loss_of(logits, labels, batch["loss_mask"], self._layout)
