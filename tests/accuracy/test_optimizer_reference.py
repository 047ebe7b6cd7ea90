"""What torch's optimizers take on one parameter list: the figures that the planner's own are held against."""

import math

import torch

from gpu_plan.planner.workload.training import Optimizer
from tests.support.optimizer_reference import optimizer_reference

SHAPES = ((64, 64), (64,), (128, 64))
TOTAL = 4 * sum(math.prod(shape) for shape in SHAPES)
LARGEST = 4 * 128 * 64


def test_adamw_foreach_takes_one_copy_of_all_parameters() -> None:
    found = optimizer_reference(Optimizer("adamw"), SHAPES)
    assert (found.state_bytes, found.second_left) == (2 * TOTAL, 0)
    assert found.second_temporary == TOTAL
    assert found.first_peak == 3 * TOTAL


def test_adamw_for_loop_takes_two_of_one_parameter_and_the_last_ones_denominator() -> None:
    found = optimizer_reference(Optimizer("adamw-forloop"), SHAPES)
    assert found.state_bytes == 2 * TOTAL
    assert found.second_temporary == 2 * LARGEST + 4 * 64


def test_adamw_fused_takes_nothing_beside_its_state() -> None:
    found = optimizer_reference(Optimizer("adamw-fused"), SHAPES)
    assert (found.state_bytes, found.second_temporary) == (2 * TOTAL, 0)


def test_sgd_keeps_and_takes_nothing_without_momentum() -> None:
    found = optimizer_reference(Optimizer("sgd"), SHAPES)
    assert (found.state_bytes, found.first_peak, found.second_temporary) == (0, 0, 0)


def test_sgd_momentum_keeps_one_copy_and_weight_decay_takes_one() -> None:
    assert optimizer_reference(Optimizer("sgd"), SHAPES, momentum=0.9).state_bytes == TOTAL
    assert optimizer_reference(Optimizer("sgd"), SHAPES, weight_decay=0.1).second_temporary == TOTAL


def test_state_follows_the_parameters_type() -> None:
    half = optimizer_reference(Optimizer("adamw"), SHAPES, dtype=torch.bfloat16)
    assert half.state_bytes == TOTAL
