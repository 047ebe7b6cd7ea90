"""One stage of HybridModel (megatron/core/models/hybrid/hybrid_model.py, hybrid_block.py, hybrid_layer_specs.py).

Further tokens: MultiTokenPredictionBlock of transformer/multi_token_prediction.py, whose layers have patterns of their
own.
"""

from dataclasses import dataclass, field

import torch
from torch import nn

from benchmarks.accuracy.megatron.hybrids.mixer import Mamba2, Mixer
from benchmarks.accuracy.megatron.hybrids.squared import SquaredExpertLayer
from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.part import GATHERED, Part
from gpu_plan.planner.pipeline.places import RECEIVED
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.megatron.functions import AddDropped
from gpu_plan.planner.trace.megatron.group import begin_groups
from gpu_plan.planner.trace.megatron.layers import Mlp, SelfAttention
from gpu_plan.planner.trace.megatron.loss import Head, loss_of
from gpu_plan.planner.trace.megatron.prediction import PredictionLayer, predicted, with_losses
from gpu_plan.planner.trace.megatron.products.linear import give_dummies
from gpu_plan.planner.trace.megatron.products.norms import Norm
from gpu_plan.planner.trace.megatron.stage import Embedding, stage_batch

MAMBA, ATTENTION, MLP, EXPERTS, STAGE, PREDICTS = "M", "*", "-", "E", "|", "/"
"""Symbols of `--hybrid-layer-pattern` (hybrid_layer_allocation.py: Symbols)."""
KINDS = frozenset((MAMBA, ATTENTION, MLP, EXPERTS, STAGE, PREDICTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """Layers of four kinds, one symbol each."""

    pattern: str
    """Without what marks stages."""
    mamba: Mamba2 = field(default_factory=Mamba2)
    further: tuple[str, ...] = ()
    """Patterns of the layers that predict further tokens, one for each token."""
    repeated: bool = False
    """Whether these are one layer, used for each of them (`--mtp-use-repeated-layer`)."""

    def build(self, part: Part) -> nn.Module:
        """The stage on meta."""
        begin_groups()
        return _Stage(part, self)

    def batch(self, part: Part, micro_batch: int, seq_len: int) -> TrainingBatch:
        """As a GPT's."""
        return stage_batch(part, micro_batch, seq_len)


class _Layer(nn.Module):
    """A mixer, attention, an MLP or experts, with its residual: mamba_layer.py: MambaLayer, mlp_layer.py: MLPLayer, and
    transformer_layer.py: TransformerLayer and MoETransformerLayer, whose other half is IdentityOp."""

    def __init__(self, model: Architecture, layout: Layout, kind: str, mamba: Mamba2) -> None:
        super().__init__()
        last = {MAMBA: "out_proj", ATTENTION: "linear_proj", MLP: "linear_fc2", EXPERTS: ""}[kind]
        inner: nn.Module
        if kind == MAMBA:
            inner = Mixer(model, layout, mamba)
        elif kind == EXPERTS:
            inner = SquaredExpertLayer(model, layout)
        else:
            inner = SelfAttention(model, layout) if kind == ATTENTION else Mlp(model, layout, model.intermediate)
        self.inner, self._last, self._dropout = inner, last, layout.hidden_dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = getattr(self.inner, self._last).bias if self._last else None
        found: torch.Tensor = AddDropped.apply(self.inner(x), bias, x, self._dropout)
        return found


def _layers(model: Architecture, layout: Layout, kinds: str, mamba: Mamba2) -> nn.Sequential:
    return nn.Sequential(*(_Layer(model, layout, kind, mamba) for kind in kinds))


class _Stage(nn.Module):
    def __init__(self, part: Part, hybrid: Hybrid) -> None:
        super().__init__()
        model, layout, cut = part.model, part.layout, part.cut
        further = hybrid.further if cut.is_last else ()
        self._first = cut.is_first
        self.embedding = Embedding(model, layout) if cut.is_first or further else None
        self.layers = _layers(model, layout, hybrid.pattern[cut.first : cut.end], hybrid.mamba)
        self.final_norm = Norm(model.hidden, bias=model.norm == "layer") if cut.is_last else None
        self.output_layer = Head(model, layout) if cut.is_last else None
        own = further[:1] if hybrid.repeated else further
        self.mtp = nn.ModuleList(
            PredictionLayer(model, layout, _layers(model, layout, kinds, hybrid.mamba)) for kinds in own
        )
        self._times = len(further) if hybrid.repeated else 1
        if model.tied and self.embedding is not None and self.output_layer is not None:
            self.output_layer.weight = self.embedding.word_embeddings.weight
        self._layout = layout
        if layout.fused_gradients:
            give_dummies(self)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        first = self.embedding if self._first else None
        x = batch[RECEIVED] if first is None else first(batch["input_ids"], batch["position_ids"])
        for layer in self.layers:
            x = layer(x)
        if self.final_norm is None or self.output_layer is None:
            return x
        x = self.final_norm(x)
        if len(self.mtp) and self.embedding is not None:
            parts = predicted([*self.mtp] * self._times, self.embedding, batch["input_ids"], batch["position_ids"], x)
            head, gathered = self.output_layer, batch.get(GATHERED)
            x = with_losses(parts, lambda part: head(part, gathered), batch["labels"], batch["loss_mask"], self._layout)
            del parts
        logits = self.output_layer(x, batch.get(GATHERED))
        del x
        return loss_of(logits, batch["labels"], batch["loss_mask"], self._layout)
