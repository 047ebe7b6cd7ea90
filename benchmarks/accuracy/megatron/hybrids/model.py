"""One stage of HybridModel (megatron/core/models/hybrid/hybrid_model.py, hybrid_block.py, hybrid_layer_specs.py)."""

from dataclasses import dataclass, field

import torch
from torch import nn

from benchmarks.accuracy.megatron.hybrids.mixer import Mamba2, Mixer
from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.part import GATHERED, Part
from gpu_plan.planner.pipeline.places import RECEIVED
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.megatron.functions import AddDropped
from gpu_plan.planner.trace.megatron.group import begin_groups
from gpu_plan.planner.trace.megatron.layers import Mlp, SelfAttention
from gpu_plan.planner.trace.megatron.loss import Head, loss_of
from gpu_plan.planner.trace.megatron.products.linear import give_dummies
from gpu_plan.planner.trace.megatron.products.norms import Norm
from gpu_plan.planner.trace.megatron.stage import Embedding, stage_batch

MAMBA, ATTENTION, MLP, STAGE = "M", "*", "-", "|"
"""Symbols of `--hybrid-layer-pattern` (hybrid_layer_allocation.py: Symbols)."""
KINDS = frozenset((MAMBA, ATTENTION, MLP, STAGE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """Layers of three kinds, one symbol each."""

    pattern: str
    """Without what marks stages."""
    mamba: Mamba2 = field(default_factory=Mamba2)

    def build(self, part: Part) -> nn.Module:
        """The stage on meta."""
        begin_groups()
        return _Stage(part, self)

    def batch(self, part: Part, micro_batch: int, seq_len: int) -> TrainingBatch:
        """As a GPT's."""
        return stage_batch(part, micro_batch, seq_len)


class _Layer(nn.Module):
    """A mixer, attention or an MLP, with its residual: mamba_layer.py: MambaLayer, mlp_layer.py: MLPLayer, and
    transformer_layer.py: TransformerLayer, whose other half is IdentityOp."""

    def __init__(self, model: Architecture, layout: Layout, kind: str, mamba: Mamba2) -> None:
        super().__init__()
        last = {MAMBA: "out_proj", ATTENTION: "linear_proj", MLP: "linear_fc2"}[kind]
        inner: nn.Module
        if kind == MAMBA:
            inner = Mixer(model, layout, mamba)
        else:
            inner = SelfAttention(model, layout) if kind == ATTENTION else Mlp(model, layout, model.intermediate)
        self.inner, self._last, self._dropout = inner, last, layout.hidden_dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = AddDropped.apply(self.inner(x), getattr(self.inner, self._last).bias, x, self._dropout)
        return found


class _Stage(nn.Module):
    def __init__(self, part: Part, hybrid: Hybrid) -> None:
        super().__init__()
        model, layout, cut = part.model, part.layout, part.cut
        self.embedding = Embedding(model, layout) if cut.is_first else None
        kinds = hybrid.pattern[cut.first : cut.end]
        self.layers = nn.ModuleList(_Layer(model, layout, kind, hybrid.mamba) for kind in kinds)
        self.final_norm = Norm(model.hidden, bias=model.norm == "layer") if cut.is_last else None
        self.output_layer = Head(model, layout) if cut.is_last else None
        if model.tied and self.embedding is not None and self.output_layer is not None:
            self.output_layer.weight = self.embedding.word_embeddings.weight
        self._layout = layout
        if layout.fused_gradients:
            give_dummies(self)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        x = batch[RECEIVED] if self.embedding is None else self.embedding(batch["input_ids"], batch["position_ids"])
        for layer in self.layers:
            x = layer(x)
        if self.final_norm is None or self.output_layer is None:
            return x
        logits = self.output_layer(self.final_norm(x), batch.get(GATHERED))
        del x
        return loss_of(logits, batch["labels"], batch["loss_mask"], self._layout)
