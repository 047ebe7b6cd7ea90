"""What some published runs put in place of transformers' own code, as far as memory goes.

Their kernels cannot run without a GPU; here stand autograd functions that save, allocate and overwrite the same
tensors. Mirrored from foundation-model-stack/fms-acceleration plugins/fused-ops-and-kernels/src/fms_acceleration_foak:
kernels/unsloth/{rms_layernorm,rope_embedding,cross_entropy_loss}.py and
fused_ops/liger_ce/fused_linear_cross_entropy_loss.py; the older loss from transformers 4.45 to 4.48
loss/loss_utils.py and models/mistral/modeling_mistral.py. Custom functions have untyped contexts, hence Any.
"""

import contextlib
import sys
from functools import partial
from types import MethodType
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import CausalLMOutputWithPast

from gpu_plan.planner.trace.setup.loss_variants import upcast_head
from gpu_plan.planner.units import ceil_div

IGNORED = -100


def in_place_loss(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **_: Any) -> torch.Tensor:
    """FastForCausalLMLoss: one fused kernel, whose backward writes the gradient over the shifted logits."""
    logits = logits.float()
    shifted, targets = _shifted(logits, labels, vocab_size)
    losses: torch.Tensor = _InPlaceCrossEntropy.apply(shifted, targets)
    return losses.sum() / torch.count_nonzero(targets != IGNORED)


def shifted_loss(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **_: Any) -> torch.Tensor:
    """transformers 4.46 to 4.48, loss/loss_utils.py: ForCausalLMLoss."""
    logits = logits.float()
    shifted, targets = _shifted(logits, labels, vocab_size)
    return F.cross_entropy(shifted, targets, ignore_index=IGNORED)


def without_last(values: torch.Tensor) -> torch.Tensor:
    """`values[..., :-1, :]` as torch 2.4 recorded it: with a slice for the full last dimension as well, whose backward
    makes a block of the shorter shape before that of the whole one. ATen/TensorIndexing.h: applySlice left a slice out
    only where its end was the length (sym_eq), today where it is beyond (sym_le)."""
    whole: torch.Tensor = torch.ops.aten.slice.Tensor(values[..., :-1, :], -1, 0, torch.iinfo(torch.int64).max)
    return whole


def _shifted(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    shifted = without_last(logits).contiguous().view(-1, vocab_size)
    return shifted, labels[..., 1:].contiguous().view(-1)


class _InPlaceCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = logits.new_empty(len(logits), dtype=torch.float32)
        ctx.save_for_backward(logits, torch.empty_like(losses), labels)
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.saved_tensors[0], None


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        rows = x.view(-1, x.shape[-1])
        ctx.save_for_backward(rows, weight, rows.new_empty(len(rows), dtype=torch.float32))
        return torch.empty_like(rows).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The gradient is written over the one that came in; the weight gets none."""
        assert len(ctx.saved_tensors) == 3
        return grads[0].view(grads[0].shape), None


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        ctx.tables = cos.squeeze(), sin.squeeze()
        return x.view(x.shape[0] * x.shape[1], -1).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """`reshape` copies a gradient whose heads do not lie side by side."""
        grad = grads[0]
        return grad.reshape(grad.shape[0] * grad.shape[1], -1).view(grad.shape), None, None


def in_place_rotary(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """fast_rope_embedding: queries and keys are rotated where they lie."""
    turned = [_Rotary.apply(x.transpose(1, 2), cos, sin).transpose(1, 2) for x in (q, k)]
    return turned[0], turned[1]


class _FusedLinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients are made chunk by chunk in forward: logits never stand whole."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        tokens, width = hidden.shape
        share = ceil_div(tokens, ceil_div(len(weight), width))
        size = 1 << (share - 1).bit_length()
        grad_weight = torch.zeros_like(weight) if weight.requires_grad else None
        grad_hidden = torch.zeros_like(hidden)
        losses = hidden.new_zeros(tokens, dtype=torch.float32)
        total = (target != IGNORED).sum()
        for start in range(0, tokens, size):
            chunk = hidden[start : start + size]
            logits = chunk @ weight.t()
            count = (target[start : start + size] != IGNORED).sum()
            logits = logits.float().contiguous()
            logits = logits.to(hidden.dtype)
            scale = count / total
            losses[start : start + size] = losses[start : start + size] * scale
            grad_logits = logits * scale
            grad_hidden[start : start + size] = grad_logits @ weight
            if grad_weight is not None:
                grad_weight.addmm_(logits.t(), chunk)
        ctx.save_for_backward(grad_hidden.detach(), None if grad_weight is None else grad_weight.detach())
        return torch.sum(losses)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden, grad_weight, None


def _forward_with_fused_loss(
    self: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **_: Any
) -> CausalLMOutputWithPast:
    """lce_forward of the plugin."""
    outputs = self.model(input_ids=input_ids, attention_mask=attention_mask)
    hidden = outputs[0]
    shifted = without_last(hidden).contiguous().view(-1, self.config.hidden_size)
    targets = labels[..., 1:].contiguous().view(-1)
    loss = _FusedLinearCrossEntropy.apply(shifted, self.lm_head.weight, targets)
    return CausalLMOutputWithPast(loss=loss, logits=None, past_key_values=outputs.past_key_values)


def use_fused_norms(model: nn.Module) -> None:
    """Every RMSNorm runs as one kernel."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(_norm, module)


def _norm(module: Any, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = _RmsNorm.apply(x, module.weight)
    return out


def use_fused_linear_loss(model: nn.Module) -> None:
    """The language model's head and its loss run as one function."""
    model.forward = MethodType(_forward_with_fused_loss, model)


def use_fp32_logits(model: Any) -> None:
    """transformers before 4.46: the head's output is upcast in the model's forward."""
    model.lm_head.forward = upcast_head(model.lm_head)


def fused_rotary(module_name: str) -> Any:
    """A context within which a modeling module rotates in place, where it rotates by the common function."""
    if not hasattr(sys.modules[module_name], "apply_rotary_pos_emb"):
        return contextlib.nullcontext()
    return mock.patch(f"{module_name}.apply_rotary_pos_emb", in_place_rotary)


def use_reentrant_checkpointing(model: Any) -> None:
    """transformers before 5.0 checkpoints reentrantly unless told otherwise (modeling_utils.py:
    gradient_checkpointing_enable)."""
    enable = model.gradient_checkpointing_enable

    def reentrant(gradient_checkpointing_kwargs: Any = None) -> None:
        enable(gradient_checkpointing_kwargs={"use_reentrant": True})

    model.gradient_checkpointing_enable = reentrant
