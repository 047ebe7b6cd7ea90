"""Tensor parallel that cuts the sequence between a layer's products, as torchtitan spreads transformers' classes.

Mirrored from torchtitan 0.2.2 torchtitan/experiments/transformers_modeling_backend/infra/parallelize.py:
apply_non_moe_tp, model/model.py: HFTransformerModel.forward, torchtitan/components/loss.py: cross_entropy_loss and
torchtitan/distributed/utils.py: get_train_context, async tensor parallel off. Norms around a feed-forward layer and
weights of their own for tied ends are 0.3.0's (hf_sharding.py: _set_layer_sharding_configs, parallelize.py:
parallelize_hf_transformers). The styles are torch's (torch/distributed/tensor/parallel/style.py).
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.parallel.tensor import check_heads

_ON_SEQUENCE = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
)  # fmt: skip
_ON_HEADS = ("q_norm", "k_norm")
_COLUMNS = {"self_attn": (("q_proj",), ("k_proj",), ("v_proj",)), "mlp": (("gate_proj", "fc1"),)}
_ROWS = {"self_attn": ("o_proj", "dense"), "mlp": ("down_proj", "fc2")}
"""Of a layer's two parts, the products that have to be there, each by the names that it goes by."""


def cut_sequence(model: Any, mesh: Any, length: int) -> None:
    """Leaves this rank's part of `model`, in place, within the group of a mesh of one dimension.

    CannotSplitError, in one line, for a class that torchtitan does not spread, and for heads or a length of samples
    that the ranks do not divide.
    """
    from torch.distributed.tensor.parallel import parallelize_module

    degree = mesh.size()
    ends, layers = _parts(model)
    check_heads(model, degree)
    if length % degree:
        raise CannotSplitError(f"--seq-len {length} is not divided by {degree} ranks, between which torchtitan cuts it")
    plans = [_layer_plan(type(model).__name__, layer) for layer in layers]
    _untie(model)
    parallelize_module(model, mesh, ends)
    for layer, plan in zip(layers, plans, strict=True):
        parallelize_module(layer, mesh, plan)


@contextlib.contextmanager
def step_of_parts(model: Any) -> Iterator[None]:
    """Within, `model` is called as torchtitan calls it, and its loss is on this rank's own part of the vocabulary.

    `forward(input_ids, labels)` takes [batch, sequence] each, labels shifted before; positions are those of the whole
    sequence, of which a layer's input is one rank's part.
    """
    from torch.distributed.tensor.parallel import loss_parallel
    from transformers.modeling_outputs import CausalLMOutputWithPast

    base = getattr(model, model.base_model_prefix)

    def forward(input_ids: torch.Tensor, labels: torch.Tensor, **_: Any) -> CausalLMOutputWithPast:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0)
        hidden = base(input_ids=input_ids, position_ids=positions, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden)
        return CausalLMOutputWithPast(loss=_loss(logits, labels), logits=logits)

    with mock.patch.object(model, "forward", forward), loss_parallel():
        yield


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """train.py: Trainer.forward_backward_step divides the sum by the tokens of the batch."""
    total = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum", ignore_index=-100)
    mean: torch.Tensor = total / labels.numel()
    return mean


def _parts(model: Any) -> tuple[dict[str, Any], nn.ModuleList]:
    """Styles of what stands around the layers, and the layers."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

    prefix = getattr(model, "base_model_prefix", "")
    base: Any = getattr(model, prefix or "-", None)
    named = (getattr(base, "embed_tokens", None), getattr(base, "norm", None), getattr(model, "lm_head", None))
    layers = getattr(base, "layers", None)
    if None in named or not isinstance(layers, nn.ModuleList):
        raise CannotSplitError(
            f"{type(model).__name__} has no embed_tokens, layers, norm and lm_head, by which torchtitan spreads a model"
        )
    ends = {
        f"{prefix}.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        f"{prefix}.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    return ends, layers


def _layer_plan(name: str, layer: Any) -> dict[str, Any]:
    """Styles of one layer, in apply_non_moe_tp's order."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
    )

    columns = [f"{part}.{_found(name, layer, part, known)}" for part in _COLUMNS for known in _COLUMNS[part]]
    rows = [f"{part}.{_found(name, layer, part, known)}" for part, known in _ROWS.items()]
    plan: dict[str, Any] = {norm: SequenceParallel() for norm in _ON_SEQUENCE if hasattr(layer, norm)}
    plan["self_attn"] = PrepareModuleInput(
        input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts={"hidden_states": Replicate()}
    )
    plan["mlp"] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    if hasattr(layer.mlp, "up_proj"):
        columns.append("mlp.up_proj")
    for norm in _ON_HEADS:
        if hasattr(layer.self_attn, norm):
            plan[f"self_attn.{norm}"] = SequenceParallel(sequence_dim=2, use_local_output=True)
    plan |= {column: ColwiseParallel() for column in columns}
    return plan | {row: RowwiseParallel(output_layouts=Shard(1)) for row in rows}


def _found(name: str, layer: Any, part: str, known: tuple[str, ...]) -> str:
    """What a product of a layer's part goes by; CannotSplitError where it is not there."""
    found = next((key for key in known if hasattr(getattr(layer, part, None), key)), None)
    if found is None:
        raise CannotSplitError(
            f"{name} has no {part}.{known[0]} of its own in every layer, by which torchtitan 0.2.2 spreads one"
        )
    return found


def _untie(model: Any) -> None:
    """The head gets a weight of its own, in place, where it shares the embedding's."""
    head, embedding = model.lm_head, model.get_input_embeddings()
    if head.weight is embedding.weight:
        head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=head.weight.requires_grad)
