"""One stage of GPTModel on one rank: its modules, its batch, and one micro batch through it.

megatron/core/models/gpt/gpt_model.py: GPTModel, models/common/embeddings/language_model_embedding.py,
transformer/transformer_block.py: TransformerBlock.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gpu_plan.planner.megatron.architecture import Architecture
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.part import GATHERED, Part
from gpu_plan.planner.pipeline.places import RECEIVED, SENT_BACK
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.trace.events import Mark
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.megatron.attending.latent import LatentSelfAttention
from gpu_plan.planner.trace.megatron.experts.layer import ExpertLayer
from gpu_plan.planner.trace.megatron.fused_head import FUSED, FusedHead
from gpu_plan.planner.trace.megatron.group import all_sum, begin_groups, scatter_sum
from gpu_plan.planner.trace.megatron.layers import Layer, Mlp, SelfAttention
from gpu_plan.planner.trace.megatron.local import Gathers, LocalAttention, LocalMlp, local_norm
from gpu_plan.planner.trace.megatron.loss import Head, loss_of
from gpu_plan.planner.trace.megatron.policy import actor_loss_of, of_verl
from gpu_plan.planner.trace.megatron.prediction import PredictionLayer, predicted, with_losses
from gpu_plan.planner.trace.megatron.products.linear import give_dummies, shared_of
from gpu_plan.planner.trace.megatron.products.norms import Norm
from gpu_plan.planner.trace.megatron.recompute import Recomputed
from gpu_plan.planner.trace.megatron.values import VALUES, ValueHead, value_loss_of
from gpu_plan.planner.trace.parallel.stages import stage_backward

if TYPE_CHECKING:
    from gpu_plan.planner.trace.recording.modules import ModuleTracker
    from gpu_plan.planner.trace.recording.recorder import Recorder


class _Reduced(torch.autograd.Function):
    """tensor_parallel/mappings.py: what each rank found of the words: summed, or summed and shared out."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layout: Layout) -> torch.Tensor:
        ctx.layout = layout
        return scatter_sum(x, layout.tensor) if layout.sequence else all_sum(x, layout.tensor)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        from gpu_plan.planner.trace.megatron.group import gather

        layout: Layout = ctx.layout
        return (gather(grads[0], layout.tensor) if layout.sequence else grads[0]), None


class _Words(nn.Module):
    """tensor_parallel/layers.py: VocabParallelEmbedding."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        rows = model.padded_vocabulary(layout.tensor) // layout.tensor
        self.weight = nn.Parameter(torch.empty(rows, model.hidden, dtype=torch.bfloat16, device="meta"))
        self._layout, self._positions = layout, model.positions

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        ranks = self._layout.tensor
        mask = None
        if ranks > 1:
            mask = (ids < 0) | (ids >= self.weight.shape[0])
            ids = ids.clone() - 0
        found = self.weight[ids] if self._layout.deterministic else nn.functional.embedding(ids, self.weight)
        if mask is not None:
            found = found.masked_fill_(mask.unsqueeze(-1), 0.0) if not found.requires_grad else _masked(found, mask)
        if self._layout.sequence and not self._positions:
            found = found.transpose(0, 1).contiguous()
        if ranks > 1 and not (self._layout.sequence and self._positions):
            found = _Reduced.apply(found, self._layout)
        elif ranks > 1:
            found = all_reduced(found, ranks)
        return found


class _Masked(torch.autograd.Function):
    """`output_parallel[input_mask, :] = 0.0`: in place; the gradient is a copy with the same rows at zero."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(mask)
        ctx.mark_dirty(x)
        return x.mul_(1.0)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return grads[0].clone(), None


class _AllReduced(torch.autograd.Function):
    """mappings.py: _ReduceFromModelParallelRegion."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: int) -> torch.Tensor:
        return all_sum(x, ranks)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return grads[0], None


def _masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = _Masked.apply(x, mask)
    return found


def all_reduced(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """The sum over the ranks, in place."""
    found: torch.Tensor = _AllReduced.apply(x, ranks)
    return found


class Embedding(nn.Module):
    """LanguageModelEmbedding."""

    def __init__(self, model: Architecture, layout: Layout) -> None:
        super().__init__()
        self.word_embeddings = _Words(model, layout)
        self.position_embeddings = (
            nn.Embedding(model.positions, model.hidden, dtype=torch.bfloat16, device="meta")
            if model.positions
            else None
        )
        self._layout = layout
        self._scattered = layout.sequence and not model.positions
        self.embedding_dropout = nn.Dropout(layout.hidden_dropout)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.word_embeddings(ids)
        if self.position_embeddings is not None:
            found = found + self.position_embeddings(positions)
        if not self._scattered:
            found = found.transpose(0, 1).contiguous()
        if self._layout.sequence and not self._scattered and self._layout.tensor > 1:
            found = found[: found.shape[0] // self._layout.tensor].clone()
        dropped: torch.Tensor = self.embedding_dropout(found)
        return dropped


class _Block(nn.Module):
    """TransformerBlock: this stage's layers, and the last norm."""

    def __init__(self, model: Architecture, layout: Layout, cut: StageCut) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer_of(model, layout, number) for number in range(cut.first, cut.end))
        norm = local_norm(model) if layout.local else Norm(model.hidden, bias=model.norm == "layer")
        self.final_layernorm = norm if cut.is_last else None
        self._layout = layout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layout = self._layout
        if layout.recompute == "full" and layout.recompute_method == "uniform":
            for start in range(0, len(self.layers), layout.recompute_layers):
                chunk = self.layers[start : start + layout.recompute_layers]
                x = Recomputed.apply(lambda value, chunk=chunk: _through(chunk, value), x)
        elif layout.recompute == "full":
            for number, layer in enumerate(self.layers):
                x = Recomputed.apply(layer, x) if number < layout.recompute_layers else layer(x)
        else:
            x = _through(self.layers, x)
        return x if self.final_layernorm is None else self.final_layernorm(x)


def _through(layers: Any, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x)
    return x


def layer_of(model: Architecture, layout: Layout, number: int) -> Layer:
    has_experts = model.experts is not None and model.experts.has(number)
    if layout.local:
        shared = shared_of(layout)
        attention: nn.Module = LocalAttention(model, layout, shared)
        dense: nn.Module = LocalMlp(model, shared, model.intermediate // layout.tensor, biases=model.biases)
    else:
        attention = SelfAttention(model, layout) if model.latent is None else LatentSelfAttention(model, layout)
        dense = Mlp(model, layout, model.intermediate)
    mlp = ExpertLayer(model, layout) if has_experts else dense
    return Layer(model, layout, attention, mlp, has_experts=has_experts)


class Stage(nn.Module):
    """GPTModel with the layers of one stage."""

    def __init__(self, model: Architecture, layout: Layout, cut: StageCut) -> None:
        super().__init__()
        predicts = model.next_tokens if cut.is_last else 0
        self.embedding = Embedding(model, layout) if cut.is_first or predicts else None
        self.decoder = _Block(model, layout, cut)
        self.mtp = nn.ModuleList(
            PredictionLayer(model, layout, layer_of(model, layout, model.layers - 1)) for _ in range(predicts)
        )
        self._values = layout.cross_entropy == VALUES
        self._fused = layout.cross_entropy == FUSED
        kind = ValueHead if self._values else FusedHead if self._fused else Head
        last: nn.Module = kind(model, layout)
        self.output_layer = last if cut.is_last else None
        self._first = cut.is_first
        self._tied = model.tied and not self._values and cut.is_last and (cut.is_first or bool(predicts))
        if self._tied and self.output_layer is not None and self.embedding is not None:
            self.output_layer.weight = self.embedding.word_embeddings.weight
        self._layout = layout
        if layout.fused_gradients:
            give_dummies(self)

    def forward(self, batch: dict[str, torch.Tensor]) -> Any:
        first = self.embedding if self._first else None
        for module in self.modules():
            if isinstance(module, Gathers):
                module.gathered = batch.get(GATHERED)
        x = batch[RECEIVED] if first is None else first(batch["input_ids"], batch["position_ids"])
        x = self.decoder(x)
        if self.output_layer is None:
            return x
        if len(self.mtp) and self.embedding is not None:
            parts = predicted(self.mtp, self.embedding, batch["input_ids"], batch["position_ids"], x)
            head, gathered = self.output_layer, batch.get(GATHERED)
            x = with_losses(parts, lambda part: head(part, gathered), batch["labels"], batch["loss_mask"], self._layout)
            del parts
        if self._values:
            return value_loss_of(self.output_layer(x), batch["loss_mask"])
        if self._fused:
            return self.output_layer(x, batch["labels"], batch["loss_mask"])
        logits = self.output_layer(x, batch.get(GATHERED))
        del x
        if of_verl(self._layout):
            logits = logits.float()  # transformer/module.py: Float16Module.forward, whose name for them is bound anew
            return actor_loss_of(logits, batch["labels"], batch["loss_mask"], self._layout)
        return loss_of(logits, batch["labels"], batch["loss_mask"], self._layout)


def build_stage(part: Part) -> Stage:
    """The stage's modules on meta, within a process group of the layout's ranks."""
    begin_groups()
    return Stage(part.model, part.layout, part.cut)


def stage_batch(part: Part, micro_batch: int, seq_len: int) -> TrainingBatch:
    """What the loader and the stage before give one micro batch (training/utils: get_batch_on_this_tp_rank)."""
    layout, model = part.layout, part.model
    length = seq_len // layout.context
    tensors: dict[str, Any] = {}
    ids = {"dtype": torch.int64, "device": "meta"}
    if part.cut.is_first or (part.cut.is_last and model.next_tokens):
        tensors["input_ids"] = torch.empty(micro_batch, length, **ids)
        tensors["position_ids"] = torch.empty(micro_batch, length, **ids)
    hidden = (length // (layout.tensor if layout.sequence else 1), micro_batch, model.hidden)
    if not part.cut.is_first:
        tensors[RECEIVED] = torch.empty(hidden, dtype=torch.bfloat16, device="meta", requires_grad=True)
    if part.cut.is_last:
        tensors["labels"] = torch.empty(micro_batch, length, **ids)
        tensors["loss_mask"] = torch.empty(micro_batch, length, dtype=torch.float32, device="meta")
    else:
        tensors[SENT_BACK] = torch.empty(hidden, dtype=torch.bfloat16, device="meta")
    if (gathered := _gathered(part, length)) > 0:
        tensors[GATHERED] = torch.empty(gathered, micro_batch, dtype=torch.bfloat16, device="meta")
    if layout.attention_mask and (part.cut.is_first or part.cut.is_last):
        tensors["attention_mask"] = torch.empty(micro_batch, 1, length, length, dtype=torch.bool, device="meta")
    return TrainingBatch(tensors=tensors, values={}, loss="cross entropy over the padded vocabulary")


def _gathered(part: Part, length: int) -> int:
    """Elements of a sample in the buffer that stays: other ranks' tokens, for the head, local layers or experts, and
    scores of attention."""
    layout, model = part.layout, part.model
    shared = layout.tensor if layout.sequence else 1
    ranks = layout.expert * layout.expert_tensor
    experts = model.experts is not None and any(map(model.experts.has, range(part.cut.first, part.cut.end)))
    uses = [0]
    if shared > 1 and ((part.cut.is_last and layout.cross_entropy not in (VALUES, FUSED)) or layout.local):
        uses.append(length * model.hidden)
    if experts and layout.dispatcher == "allgather" and ranks > 1:
        uses.append(length // shared * ranks * model.hidden)
    if layout.local:
        uses.append(model.heads // layout.tensor * length * length)
    return max(uses)


def run_forward(stage: nn.Module, batch: TrainingBatch, recorder: "Recorder") -> tuple[Any, ...]:
    """One micro batch forward without gradients; returns the output, or what the last stage's loss function gives."""
    recorder.mark(Mark.FORWARD)
    with torch.no_grad():
        output = stage(batch.tensors)
    recorder.mark(Mark.OUTPUTS_BOUND)
    recorder.mark(Mark.BACKWARD)
    recorder.mark(Mark.BACKWARD_END)
    return output if isinstance(output, tuple) else (output,)


def run_part(
    stage: nn.Module, part: Part, batch: TrainingBatch, tracker: "ModuleTracker", recorder: "Recorder"
) -> tuple[Any, ...]:
    """One micro batch forward and backward (core/pipeline_parallel/schedules.py: forward_step, backward_step); returns
    what the schedule may still hold: the output, the loss and what is sent back."""
    recorder.mark(Mark.FORWARD)
    output = stage(batch.tensors)
    recorder.mark(Mark.OUTPUTS_BOUND)
    tracker.start_backward()
    recorder.mark(Mark.BACKWARD)
    back = stage_backward(
        output, batch.tensors.get(SENT_BACK), batch.tensors.get(RECEIVED, batch.tensors.get("labels"))
    )
    tracker.end_backward()
    recorder.mark(Mark.BACKWARD_END)
    return output, back
