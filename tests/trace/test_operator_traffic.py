"""Bytes that an operator moves, as the recorder notes them."""

import torch

from gpu_plan.planner.trace.recording.operators.work import unread

ATEN = torch.ops.aten
X = torch.empty(4, 8, 8, device="meta")
"""Stands for every operand."""


def test_where_a_result_is_put_is_not_read() -> None:
    assert unread(ATEN.exp.out, (X,), {"out": X}) == [X]
    assert unread(ATEN.mul.out, (X, X), {"out": X}) == [X]
    assert unread(ATEN.exp.default, (X,), {}) == []
    assert unread(ATEN.add_.Tensor, (X, X), {}) == []


def test_what_beta_leaves_out_is_not_read() -> None:
    assert unread(ATEN.baddbmm.default, (X, X, X), {"beta": 0.0, "alpha": 0.5}) == [X]
    assert unread(ATEN.baddbmm.default, (X, X, X), {"beta": 1.0}) == []
    assert unread(ATEN.baddbmm.default, (X, X, X), {}) == []
