"""LLaVAModel on one rank (megatron/core/models/multimodal/llava_model.py; Megatron-LM, pretrain_vlm.py).

Custom functions have untyped contexts, hence Any.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from benchmarks.accuracy.megatron.llava.packed import PackedAttention
from benchmarks.accuracy.megatron.llava.vision import Image, Projection, Tower
from gpu_plan.planner.megatron.part import GATHERED, Part
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.megatron.group import begin_groups, gather
from gpu_plan.planner.trace.megatron.loss import Head, loss_of
from gpu_plan.planner.trace.megatron.products.linear import give_dummies
from gpu_plan.planner.trace.megatron.products.norms import Norm
from gpu_plan.planner.trace.megatron.stage import Embedding, layer_of, stage_batch

_PICTURES = "pictures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Llava:
    """A vision tower before a language model; one picture a sample, in the place of one token."""

    image: Image
    packed: bool = False
    """Whether samples lie end to end (`--use-packed-sequence`, or tokens are padded)."""

    def build(self, part: Part) -> nn.Module:
        """The rank's modules on meta."""
        begin_groups()
        return _Llava(part, self)

    def batch(self, part: Part, micro_batch: int, seq_len: int) -> TrainingBatch:
        """A picture in fp32, and the text with one token in the picture's place, whole on every rank; no mask is sent
        (pretrain_vlm.py: get_batch)."""
        tensors = dict(stage_batch(part, micro_batch, seq_len).tensors)
        tensors.pop("attention_mask", None)
        text = seq_len - self.image.tokens + 1
        for name in ("input_ids", "position_ids", "labels"):
            tensors[name] = torch.empty(micro_batch, text, dtype=torch.int64, device="meta")
        tensors["loss_mask"] = torch.empty(micro_batch, text, dtype=torch.float32, device="meta")
        size = (micro_batch, 3, self.image.height, self.image.width)
        tensors[_PICTURES] = torch.empty(size, dtype=torch.float32, device="meta")
        return TrainingBatch(tensors=tensors, values={}, loss="cross entropy over the padded vocabulary")


class _Scattered(torch.autograd.Function):
    """tensor_parallel/mappings.py: _ScatterToSequenceParallelRegion: a part of what there is, not a copy of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: int) -> torch.Tensor:
        ctx.ranks = ranks
        return x[: x.shape[0] // ranks].contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return gather(grads[0], ctx.ranks), None


class _Llava(nn.Module):
    def __init__(self, part: Part, llava: Llava) -> None:
        super().__init__()
        model, layout, image = part.model, part.layout, llava.image
        # pretrain_vlm.py: tokens are shared out in the language model alone.
        whole = replace(layout, sequence=False, context=1)
        self.embedding = Embedding(model, whole)
        self.decoder = nn.ModuleList(layer_of(model, layout, number) for number in range(model.layers))
        if llava.packed and layout.context > 1:
            for layer in self.decoder:
                attention: Any = layer.self_attention
                attention.core_attention = PackedAttention(layout, model.head_dim)
        self.final_layernorm = Norm(model.hidden, bias=model.norm == "layer")
        self.output_layer = Head(model, layout)
        self.vision_model = Tower(model, whole, image)
        self.vision_projection = Projection(model, whole)
        self._layout, self._image = layout, image
        if layout.fused_gradients:
            give_dummies(self)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        # transformer/module.py: Float16Module.forward: what comes in fp32 is brought to 16 bits.
        seen = self.vision_model(batch[_PICTURES].to(torch.bfloat16))
        if not self._image.keeps_class:
            seen = seen[:, 1:, :]
        seen = self.vision_projection(seen.permute(1, 0, 2).contiguous())
        text = self.embedding(batch["input_ids"].clone(), batch["position_ids"]).transpose(1, 0).contiguous()
        x, index = self._combined(seen, text)
        labels, mask = (self._expanded(batch[name], x).index_select(1, index) for name in ("labels", "loss_mask"))
        x = x.index_select(1, index).transpose(1, 0).contiguous()
        if self._layout.sequence:
            x = _Scattered.apply(x, self._layout.tensor)
        for layer in self.decoder:
            x = layer(x)
        logits = self.output_layer(self.final_layernorm(x), batch.get(GATHERED))
        del x
        return loss_of(logits, labels, mask, self._layout)

    def _combined(self, seen: torch.Tensor, text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """_preprocess_data: [samples, all tokens, hidden], and which of them are this context parallel rank's."""
        samples, words, hidden = text.shape
        words -= 1  # the picture's own
        tokens = words + seen.shape[0]
        ids: Any = {"dtype": torch.int64, "device": text.device}
        found = torch.zeros(samples, tokens, hidden, dtype=text.dtype, device=text.device)
        of, where, which = (torch.empty(samples * words, **ids) for _ in range(3))
        found[of, where] = text[of, which]
        of, where = (torch.empty(samples * seen.shape[0], **ids) for _ in range(2))
        found[of, where] = seen.permute(1, 0, 2).reshape(-1, hidden).contiguous()
        return found, torch.empty(tokens // self._layout.context, **ids)

    def _expanded(self, given: torch.Tensor, combined: torch.Tensor) -> torch.Tensor:
        return torch.full(combined.shape[:2], 0, dtype=given.dtype, device=given.device)
