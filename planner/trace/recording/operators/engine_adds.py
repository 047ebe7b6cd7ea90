"""Tells operators that a device would run in place from those that make a new tensor.

Some C++ code chooses the out-of-place form only because tensors are meta or a dispatch mode is active: "for
composite compliance" in pytorch's own words (areAnyTensorSubclassLike).
"""

import sys
from typing import Any

import torch

_DISPATCH_FRAMES = 3
_BACKWARD_CALLER = "_engine_run_backward"
_ATTENTION_CALLER = "_attention"

_FILLS = frozenset({"index_put", "scatter", "scatter_add", "masked_scatter", "index_add"})
"""Backward formulas that fill a buffer of zeros (pytorch torch/csrc/autograd/FunctionsManual.cpp, aten
TensorAdvancedIndexing.cpp: index_backward, value_selecting_reduction_backward, gather_backward,
masked_select_backward, index_select_backward).
"""
ZEROS = frozenset({"new_zeros", "zeros", "zeros_like"})
"""What makes the buffers that those formulas fill."""
IN_PLACE_ON_DEVICE = _FILLS | {"add"}
"""Operators that `done_in_place` is worth asking about."""


def done_in_place(name: str, args: tuple[Any, ...], backward: bool) -> bool:
    """Whether a device would have written the result into the first operand, if it is the only owner.

    The asked-for frame is the Python caller of the operator: C++ code, unlike Python code, leaves none of its
    own. Whether the first operand has other owners is judged later, by its death.
    """
    if not args or not isinstance(args[0], torch.Tensor):
        return False
    caller = sys._getframe(_DISPATCH_FRAMES).f_code.co_name
    if caller == _ATTENTION_CALLER:
        return name == "add"  # attention.cpp: _scaled_dot_product_attention_math adds the mask to the scores
    if not backward or caller != _BACKWARD_CALLER:
        return False
    return name in _FILLS or _is_engine_add(args)


def _is_engine_add(args: tuple[Any, ...]) -> bool:
    """Whether this `add` sums two gradients that meet at one input and could be done in place.

    In place needs a first buffer that is no view and dense (pytorch torch/csrc/autograd/input_buffer.cpp:
    can_accumulate_inplace).
    """
    if len(args) < 2 or not isinstance(args[1], torch.Tensor):
        return False
    old, new = args[0], args[1]
    if old.shape != new.shape or old.dtype != new.dtype:
        return False
    return not old._is_view() and torch.ops.aten.is_non_overlapping_and_dense(old)
