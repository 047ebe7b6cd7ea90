"""Tells the autograd engine's own gradient additions from additions that belong to the step."""

import sys
from typing import Any

import torch

_DISPATCH_FRAMES = 2


def is_engine_add(args: tuple[Any, ...]) -> bool:
    """Whether this `add` sums two gradients that meet at one input and could be done in place.

    The engine calls it from C++, so the Python caller is the one that started backward. In place needs a first
    buffer that is no view and dense (pytorch torch/csrc/autograd/input_buffer.cpp: can_accumulate_inplace); its
    sole ownership is judged later, by its death.
    """
    if len(args) < 2 or not isinstance(args[0], torch.Tensor) or not isinstance(args[1], torch.Tensor):
        return False
    old, new = args[0], args[1]
    if old.shape != new.shape or old.dtype != new.dtype:
        return False
    if sys._getframe(_DISPATCH_FRAMES).f_code.co_name != "_engine_run_backward":
        return False
    return not old._is_view() and torch.ops.aten.is_non_overlapping_and_dense(old)
