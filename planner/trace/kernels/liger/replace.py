"""Runs a model's step with Liger's kernels in place, as transformers' `use_liger_kernel` puts them there.

transformers integrations/liger.py: apply_liger_kernel; liger-kernel src/liger_kernel/transformers/monkey_patch.py:
_apply_liger_kernel_to_instance and transformers/model/*.py: lce_forward. Models are patched for the time of a step.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import CausalLMOutputWithPast

from gpu_plan.planner.model.kernels.liger import LIGER_MODELS, LigerModel
from gpu_plan.planner.trace.kernels.liger.kernels import LigerGatedProduct, LigerRmsNorm, rotary
from gpu_plan.planner.trace.kernels.liger.loss import LigerDevice, causal_loss, cross_entropy

_ROTARY = "apply_rotary_pos_emb"


@contextlib.contextmanager
def liger_kernels(model: nn.Module, fused: tuple[str, ...], device: LigerDevice) -> Iterator[None]:
    """`fused`: `layers` for norms, gated products and rotation, `loss` for the fused linear cross entropy.

    The model is one that `planner.model.kernels.liger.check_liger` let through, with adapters around it or not.
    """
    base = _base_of(model)
    known = LIGER_MODELS[base.config.model_type]
    with contextlib.ExitStack() as stack:
        if "layers" in fused:
            for name, module in base.named_modules():
                forward = _layer_forward(name, module, known, device)
                if forward is not None:
                    stack.enter_context(mock.patch.object(module, "forward", forward))
            home = sys.modules[type(base).__module__]
            if known.rope:
                stack.enter_context(mock.patch.object(home, _ROTARY, rotary))
        if "loss" in fused and known.linear_loss:
            stack.enter_context(mock.patch.object(base, "forward", _forward_with_loss(base, device)))
        elif "loss" in fused:
            stack.enter_context(mock.patch.object(F, "cross_entropy", cross_entropy))
        yield


def _base_of(model: Any) -> Any:
    """transformers trainer_utils.py: unwrap_peft_model."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _layer_forward(name: str, module: nn.Module, known: LigerModel, device: LigerDevice) -> Callable[..., Any] | None:
    kind = type(module).__name__
    if kind.endswith("RMSNorm") and name.rpartition(".")[2] not in known.skips:
        final = name == "model.norm" and known.final_norm_in_place is not None
        return _norm(module, bool(known.final_norm_in_place) if final else known.norm_in_place, device)
    if kind.endswith("MLP") and known.mlp is not None:
        return _halves(module) if known.mlp == "silu-chunk" else _pair(module)
    return None


def _norm(module: Any, in_place: bool, device: LigerDevice) -> Callable[[torch.Tensor], Any]:
    return lambda hidden: LigerRmsNorm.apply(hidden, module.weight, in_place, device)


def _pair(module: Any) -> Callable[[torch.Tensor], Any]:
    """LigerSwiGLUMLP and LigerGEGLUMLP."""
    return lambda x: module.down_proj(LigerGatedProduct.apply(module.gate_proj(x), module.up_proj(x)))


def _halves(module: Any) -> Callable[[torch.Tensor], Any]:
    """LigerPhi3SwiGLUMLP: the kernel makes both halves contiguous first."""

    def forward(x: torch.Tensor) -> Any:
        up_states = module.gate_up_proj(x)
        gate, up_states = up_states.chunk(2, dim=-1)
        return module.down_proj(LigerGatedProduct.apply(gate, up_states))

    return forward


def _forward_with_loss(base: Any, device: LigerDevice) -> Callable[..., CausalLMOutputWithPast]:
    """lce_forward. The head's weight is read inside its module: FSDP and ZeRO-3 have it whole there
    (lce_maybe_trainable_lm_head does so for FSDP1; ZeRO-3 gathers on access). Without labels it makes logits."""
    own = base.forward

    def forward(input_ids: Any = None, labels: torch.Tensor | None = None, **others: Any) -> CausalLMOutputWithPast:
        if labels is None:
            plain: CausalLMOutputWithPast = own(input_ids=input_ids, **others)
            return plain
        outputs = base.model(input_ids=input_ids, **others)
        hidden = outputs[0]
        kept = hidden[:, slice(0, None), :]
        head = base.lm_head

        def loss_of(rows: torch.Tensor) -> torch.Tensor:
            return causal_loss(rows, head.weight, labels, device)

        with mock.patch.object(head, "forward", loss_of):
            loss = head(kept)
        return CausalLMOutputWithPast(loss=loss, logits=None, past_key_values=outputs.past_key_values)

    return forward
