"""Attention of transformers 4.45's Mistral, as far as memory goes.

Mirrored from transformers 4.45 models/mistral/modeling_mistral.py: MistralFlashAttention2.forward. Unlike today, every
layer makes its own rotary tables, and keys and values are repeated for every query head even for flash attention, the
narrow ones going as the repeated ones come. The other models of that release keep frequencies per layer too.
"""

import sys
from types import MethodType
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from gpu_plan.planner.model.build.flash import SECOND


def use_repeated_keys(model: Any) -> None:
    """Every attention of `model` runs as it did, and the model itself makes no tables."""
    make_tables = model.model.rotary_emb.forward
    for module in _attentions(model):
        module.make_tables = make_tables
        module.forward = MethodType(_forward, module)
    model.model.rotary_emb.forward = lambda *_, **__: None


def use_frequencies_per_layer(model: Any) -> None:
    """transformers before 4.48: each attention holds a rotary embedding, and thereby its frequencies."""
    rotary = getattr(getattr(model, "model", None), "rotary_emb", None)
    if not isinstance(getattr(rotary, "inv_freq", None), torch.Tensor):
        return
    for module in _attentions(model):
        module.register_buffer("layer_frequencies", torch.empty_like(rotary.inv_freq), persistent=False)


def _attentions(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__.endswith("Attention")]


def _forward(
    self: Any, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **given: Any
) -> tuple[torch.Tensor, None]:
    shape = (*hidden_states.shape[:-1], -1, self.head_dim)
    query = self.q_proj(hidden_states).view(shape).transpose(1, 2)
    key = self.k_proj(hidden_states).view(shape).transpose(1, 2)
    value = self.v_proj(hidden_states).view(shape).transpose(1, 2)
    cos, sin = self.make_tables(value, given["position_ids"])
    # What the run put in place of this function is looked up when it is called.
    query, key = sys.modules[type(self).__module__].apply_rotary_pos_emb(query, key, cos, sin)
    copies = query.shape[1] // key.shape[1]
    key = _repeat(key, copies)
    value = _repeat(value, copies)
    run = ALL_ATTENTION_FUNCTIONS[SECOND.name]
    out, _ = run(self, query, key, value, attention_mask, dropout=0.0, scaling=self.scaling)
    return self.o_proj(out.reshape(*hidden_states.shape[:-1], -1).contiguous()), None


def _repeat(heads: torch.Tensor, copies: int) -> torch.Tensor:
    batch, count, tokens, size = heads.shape
    wide = heads[:, :, None].expand(batch, count, copies, tokens, size)
    return wide.reshape(batch, count * copies, tokens, size)
