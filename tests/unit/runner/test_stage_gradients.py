"""Gradients that a schedule leaves are the loss's own: scaled by what backward brings, added to what stands."""

import pytest
import torch

from gpu_plan.executor.runner.parallel.piped.gradients import Step, loss_of


def step_of(weight: torch.nn.Parameter, gradient: float) -> torch.Tensor:
    """A training call whose schedule has left `gradient`."""
    step = Step([weight])
    weight.grad = torch.full_like(weight, gradient)
    step.set_aside()
    return loss_of(step, torch.tensor(2.0))


@pytest.mark.parametrize(("divided", "expected"), [(1, 3.0), (2, 1.5)])
def test_backward_hands_them_over(divided: int, expected: float) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    loss = step_of(weight, 3.0) / divided
    assert weight.grad is None, "not before backward"
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [expected, expected]
    assert loss.item() == 2.0 / divided


def test_calls_add_up_and_cleared_ones_do_not() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    step_of(weight, 1.0).backward()
    step_of(weight, 2.0).backward()
    assert weight.grad is not None
    assert weight.grad.item() == 3.0
    loss = step_of(weight, 5.0)
    weight.grad = None  # zero_grad between the model's call and backward
    loss.backward()
    assert weight.grad.item() == 5.0


def test_a_call_without_backward_leaves_nothing() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    step_of(weight, 1.0)
    step_of(weight, 2.0).backward()
    assert weight.grad is not None
    assert weight.grad.item() == 2.0
