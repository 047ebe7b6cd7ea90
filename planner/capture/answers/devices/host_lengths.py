"""Lengths of sequences that CUDA's operators take from the host, where a capture has them elsewhere."""

from collections.abc import Callable
from typing import Any

import torch

from gpu_plan.planner.trace.inputs.known import KnownValues

_PACK = torch._C._VariableFunctions._pack_padded_sequence


def with_lengths(
    func: Any,
    args: tuple[Any, ...],
    known: KnownValues,
    twin: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[Any, ...]:
    """The arguments of a call of `func` as its kernels for shapes want them.

    torch/nn/utils/rnn.py: pack_padded_sequence wants lengths `[samples]` on the host: those that are known, else
    all of them as long as the padded batch, the most that they can be. ctc_loss (pytorch
    aten/src/ATen/native/LossCTC.cpp) wants lengths beside its log probabilities.
    """
    if func is _PACK and args[0].is_meta and args[1].is_meta:
        lengths = known.get(args[1])
        longest = args[0].shape[1 if args[2] else 0]
        if lengths is None:
            lengths = torch.full(args[1].shape, longest, dtype=torch.int64)
        return (args[0], lengths, *args[2:])
    if func is torch.ctc_loss and args[0].is_meta:
        return tuple(twin(one) if isinstance(one, torch.Tensor) else one for one in args)
    return args


TAKEN = frozenset({_PACK, torch.ctc_loss})
"""Functions whose arguments `with_lengths` looks at."""
