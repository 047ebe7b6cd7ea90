"""RecurrentGemma's linear recurrence, which transformers runs as a loop over tokens on every device.

The loop's small tensors are counted together: each kind, for all tokens, as one tensor.
"""

from typing import Any

import torch
from torch.autograd import Function


class RnnScan(Function):
    """transformers models/recurrent_gemma/modeling_recurrent_gemma.py: RecurrentGemmaRglru._rnn_scan.

    Every token keeps its fp32 state, and an fp32 copy of its gate unless that is fp32 already. In backward, each
    token's select makes a zeroed gradient of the whole sequence that is summed into one (torch `select_backward`),
    and each write into the output copies the output's gradient (torch CopySlices).
    """

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, tokens, width = hidden.shape
        out = torch.zeros_like(hidden)
        states = torch.empty(tokens, batch, width, dtype=torch.float32, device=hidden.device)
        low = gate.dtype != torch.float32
        gates = torch.empty_like(states[1:]) if low else gate  # the first state needs no gradient: no first gate
        last = torch.empty(batch, width, dtype=torch.float32, device=hidden.device)
        ctx.save_for_backward(states, gates)
        ctx.dtypes = hidden.dtype, gate.dtype
        return out, last

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[torch.Tensor, torch.Tensor]:
        copied = torch.empty_like(grad)
        dhidden, dgate = (torch.zeros_like(grad, dtype=dtype) for dtype in ctx.dtypes)
        one_hidden, one_gate = torch.zeros_like(dhidden), torch.zeros_like(dgate)
        del copied, one_hidden, one_gate
        return dhidden, dgate


def rnn_scan(
    self: Any,
    hidden_states: torch.Tensor,
    recurrent_gate: torch.Tensor,
    reset: torch.Tensor,
    recurrent_states: torch.Tensor | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """hidden_states and recurrent_gate [B, L, W] -> ([B, L, W], last state fp32 [B, W])."""
    out, last = RnnScan.apply(hidden_states, recurrent_gate * ~reset)
    return out, last
