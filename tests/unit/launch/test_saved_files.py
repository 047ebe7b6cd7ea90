"""What a run leaves on disk, from what is trained and how the stack keeps it."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.saved_files import saved_files
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, adapters_on
from gpu_plan.planner.workload.stacks.registry import Stack
from gpu_plan.planner.workload.training import Optimizer, Peft, Precision
from tests.support.tiny_trace import tiny_trace

SHAPES = [(100, 4), (50, 4), (25, 4)]
NUMEL = 700


def saved(strategy: str, precision: str, optimizer: str = "adamw", frozen: Any = (), peft: Peft = NO_ADAPTERS) -> Any:
    workload: Any = SimpleNamespace(
        precision=Precision(precision), peft=peft, optimizer=Optimizer(optimizer), stack=Stack("accelerate")
    )
    strategy_ = STRATEGIES[strategy]
    regime = strategy_.regime(workload.precision, workload.stack, peft)
    return saved_files(tiny_trace(SHAPES, element_bytes=4, frozen=list(frozen)), regime, strategy_.traits, workload)


@pytest.mark.parametrize(
    ("strategy", "precision", "optimizer", "weights", "whole"),
    [
        ("single", "bf16-mixed", "adamw", 4, 12),
        ("single", "bf16", "adamw", 2, 6),
        ("single", "bf16-mixed", "sgd", 4, 4),
        ("fsdp", "bf16-mixed", "adamw", 4, 12),
        ("zero3", "bf16-mixed", "adamw", 2, 2 + 12),  # a module of 16 bits, masters and states beside it
    ],
)
def test_bytes_of_a_parameter(strategy: str, precision: str, optimizer: str, weights: int, whole: int) -> None:
    found = saved(strategy, precision, optimizer)
    assert (found.weights_bytes, found.checkpoint_bytes) == (weights * NUMEL, whole * NUMEL)


def test_adapters_are_saved_without_what_is_frozen() -> None:
    found = saved("single", "bf16-mixed", frozen=[0], peft=adapters_on(quantised=False))
    assert found.checkpoint_bytes == 3 * found.weights_bytes == 12 * (NUMEL - 400)
    whole = saved("single", "bf16-mixed", frozen=[0])
    assert whole.weights_bytes > found.weights_bytes
